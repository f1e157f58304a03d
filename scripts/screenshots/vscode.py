"""Runs the packaged extension in a real VS Code (code-server, in a browser), checks what it shows, and takes
the picture of editors/vscode/README.md.

    make vscode
    python scripts/screenshots/vscode.py --code-server CODE_SERVER [--browser /usr/bin/chromium]

CODE_SERVER is `code-server`, or its `out/node/entry.js`.  Needs the package playwright; downloads nothing.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from editor_page import EditorPage, browser_page

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "editors" / "vscode"
IMAGES = EXTENSION / "images"
EXAMPLE = ROOT / "examples" / "attention.py"
START_S = 60.0
SETTINGS = {
    "workbench.startupEditor": "none",
    "workbench.colorTheme": "Default Light Modern",
    "workbench.activityBar.location": "hidden",
    "editor.minimap.enabled": False,
    "editor.stickyScroll.enabled": False,
    "editor.fontSize": 13,
    "editor.hover.above": False,
    "extensions.ignoreRecommendations": True,
    "window.commandCenter": False,
    "aotlens.server.command": [sys.executable, "-P", "-m", "aotlens", "lsp"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--code-server", required=True, help="the program, or its out/node/entry.js")
    parser.add_argument("--browser", default="/usr/bin/chromium", help="Chromium (default: %(default)s)")
    arguments = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        workspace = home / "examples"
        workspace.mkdir()
        shutil.copy(EXAMPLE, workspace)
        with (
            code_server(arguments.code_server, home) as address,
            browser_page(arguments.browser, f"{address}/?folder={workspace}") as page,
        ):
            try:
                look(EditorPage(page), workspace / EXAMPLE.name)
            except BaseException:
                failed = Path(tempfile.gettempdir(), "aotlens-vscode-failed.png")
                page.screenshot(path=failed)
                print(f"what the editor showed then: {failed}", file=sys.stderr)
                raise
    print("the extension shows all that it should; pictures in", IMAGES.relative_to(ROOT))


def look(editor: EditorPage, file: Path) -> None:
    """Check what a user sees, in the order in which they see it."""
    without_trust(editor, file)
    traced(editor)
    memory(editor)
    graphs(editor)
    commands(editor, file)


def without_trust(editor: EditorPage, file: Path) -> None:
    """Check that lenses appear, and that a trace is rejected with a solution."""
    editor.answer_trust(trusts=False)
    editor.page.keyboard.press("Control+b")  # hide the side bar for more room
    editor.open_file(file.name)
    editor.lens("Trace").click()
    editor.see_message("it is off until you trust this workspace")
    assert "trust this workspace" in editor.status(), editor.status()
    editor.grant_trust()


def traced(editor: EditorPage) -> None:
    """Check the summary, the hints, a finding and a hover."""
    editor.lens("Trace").click()
    editor.lens("training · ")
    editor.lens("terminal app")  # the last one of the line, which is drawn from left to right
    assert "saves 3.5 MiB" in editor.lenses()[0], editor.lenses()
    shown = "backward | wrapper | verify | retrace | terminal app"
    assert editor.lenses()[0].endswith(shown), editor.lenses()
    for hint in (": f32[8, 256, 256]", "saved 2.0 MiB", "mutated seen"):
        editor.see_hint(hint)
    editor.see(".squiggly-info")
    assert "Ready, with 1 trace." in editor.status(), editor.status()
    text = editor.hover("softmax")
    assert "Saves for the backward" in text, text
    editor.picture(str(IMAGES / "editor.png"))


def memory(editor: EditorPage) -> None:
    """Check that the view in the side bar has the target with its peak, and the values below it."""
    editor.run_command("Focus on Memory View")
    editor.see(".pane-body .monaco-list-row", "attend")
    editor.page.keyboard.press("Home")
    editor.page.keyboard.press("ArrowRight")
    editor.see(".pane-body .monaco-list-row", "MiB")
    editor.picture(str(IMAGES / "memory.png"))
    editor.page.keyboard.press("Control+b")


def graphs(editor: EditorPage) -> None:
    """Check that a graph opens beside the code, is read-only, and leads back to the expression."""
    editor.lens("backward").click()
    editor.see(".tab.active", "backward.py")
    editor.see(".view-line", "def\xa0backward_graph")
    editor.picture(str(IMAGES / "backward.png"))
    editor.page.keyboard.type("x")
    editor.see(".monaco-editor-overlaymessage", "Cannot edit in read-only editor")
    editor.page.keyboard.press("Escape")
    editor.page.keyboard.press("Control+w")


def commands(editor: EditorPage, file: Path) -> None:
    """Check the commands of the palette, including the export and the terminal app."""
    editor.run_command("aotlens: Show a Graph")
    editor.pick("wrapper")
    editor.see(".tab.active", "wrapper.py")
    editor.page.keyboard.press("Control+w")
    editor.lens("verify").click()
    editor.see_message("attend: ")
    editor.run_command("aotlens: Export a Traced Target")
    editor.press_button("OK")  # the name that the dialog proposes
    editor.see(".tab.active", "attention_attend_exported.py")
    assert "Generated by aotlens" in file.with_name("attention_attend_exported.py").read_text()
    editor.page.keyboard.press("Control+w")
    editor.lens("terminal app").click()
    editor.see(".tab.active", "aotlens attend")
    editor.page.wait_for_timeout(12_000)  # it is drawn on a canvas, so there is no text to wait for
    editor.picture(str(IMAGES / "terminal.png"))
    assert editor.focused() == "xterm-helper-textarea", editor.focused()
    editor.page.keyboard.press("q")
    editor.see(".tab.active", file.name)
    editor.run_command("aotlens: Restart the Language Server")
    editor.lens("Trace")


@contextmanager
def code_server(program: str, home: Path) -> Iterator[str]:
    """Run the editor on the loopback address, with only this extension, within the block."""
    settings = home / "data" / "User" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(SETTINGS))
    config = home / "config.yaml"
    config.touch()
    command = [*(["node"] if program.endswith(".js") else []), program, "--config", str(config)]
    command += ["--user-data-dir", str(home / "data"), "--extensions-dir", str(home / "extensions")]
    vsix = EXTENSION / "aotlens.vsix"
    subprocess.run([*command, "--install-extension", str(vsix)], check=True, stdout=sys.stderr)
    address = f"127.0.0.1:{_free_port()}"
    command += ["--auth", "none", "--disable-telemetry", "--disable-update-check", "--bind-addr", address]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    serving = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        _wait_for(address)
        yield f"http://{address}"
    finally:
        os.killpg(serving.pid, signal.SIGTERM)
        serving.wait(START_S)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _wait_for(address: str) -> None:
    host, _, port = address.partition(":")
    end = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection((host, int(port))).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    main()
