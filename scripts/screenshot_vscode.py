"""Runs the packaged extension in a real VS Code (code-server, in a browser), checks what it shows, and takes
the picture of editors/vscode/README.md.

    make vscode
    python scripts/screenshot_vscode.py --code-server CODE_SERVER [--browser /usr/bin/chromium] [--to FOLDER]

CODE_SERVER is `code-server`, or its `out/node/entry.js`.  Needs the package playwright; downloads nothing.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from editor_page import EditorPage, browser_page

ROOT = Path(__file__).resolve().parent.parent
EXTENSION = ROOT / "editors" / "vscode"
EXAMPLE = "attention.py"
QUIET = {
    "security.workspace.trust.startupPrompt": "always",
    "workbench.startupEditor": "none",
    "workbench.colorTheme": "Default Light Modern",
    "workbench.tips.enabled": False,
    "editor.minimap.enabled": False,
    "editor.stickyScroll.enabled": False,
    "editor.fontSize": 13,
    "extensions.ignoreRecommendations": True,
    "telemetry.telemetryLevel": "off",
    "window.commandCenter": False,
    "chat.commandCenter.enabled": False,
    "aotlens.server.command": [sys.executable, "-P", "-m", "aotlens", "lsp"],
}


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        workspace = home / "examples"
        workspace.mkdir()
        shutil.copy(ROOT / "examples" / EXAMPLE, workspace)
        with (
            code_server(options.code_server, home) as address,
            browser_page(options.browser, f"{address}/?folder={workspace}") as page,
        ):
            try:
                look(EditorPage(page, address), options.to)
            except Exception:
                page.screenshot(path=options.to / "failed.png")
                raise
    print("the extension shows all that it should")  # noqa: T201 (a script's own output)


def look(editor: EditorPage, to: Path) -> None:
    """What a user sees, in the order in which they come to see it."""
    editor.distrust()
    editor.open_file(EXAMPLE)
    editor.wait_for_lens("Trace")
    editor.click_lens("Trace")
    editor.wait_for_message("trust this workspace")
    editor.trust()
    editor.click_lens("Trace")
    editor.wait_for_lens("training · 27 fw / 46 bw nodes · saves 3.5 MiB")
    editor.wait_for_hint(": f32[8, 256, 256]")
    editor.wait_for_hint("saved 2.0 MiB")
    editor.wait_for_hint("mutated")
    editor.wait_for_squiggle()
    editor.hover("softmax")
    editor.wait_for_hover("Kept for the backward")
    editor.page.screenshot(path=to / "editor.png")
    editor.click_lens("backward")
    editor.wait_for_tab("backward.py")
    editor.wait_for_read_only()
    editor.page.screenshot(path=to / "backward.png")


@contextmanager
def code_server(program: str, home: Path) -> Iterator[str]:
    """The editor's server on the loopback address, with the extension and nothing else; ends with the block."""
    command = ["node", program] if program.endswith(".js") else [program]
    places = ["--user-data-dir", str(home / "data"), "--extensions-dir", str(home / "extensions")]
    config = home / "config.yaml"
    config.write_text("")
    command += ["--config", str(config), *places]
    settings = home / "data" / "User" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json_of(QUIET))
    subprocess.run(
        [*command, "--install-extension", str(EXTENSION / "aotlens.vsix")], check=True, stdout=sys.stderr
    )
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    serving = subprocess.Popen(
        [*command, "--auth", "none", "--disable-telemetry", "--disable-update-check"]
        + ["--bind-addr", f"127.0.0.1:{port}"],
        env=environment,
        stdout=sys.stderr,
        start_new_session=True,
    )
    try:
        wait_until_served(address)
        yield address
    finally:
        os.killpg(serving.pid, 15)
        serving.wait(30)
