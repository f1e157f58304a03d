"""The terminal app: its start; first paint, keys and memory on reports of 1,000, 10,000 and 50,000 nodes.

Each report is made by the engine in a process of its own, and shown in another one, without torch.
"""

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

import tui
from benchmarks.harness import Cell, Table, publish
from benchmarks.pseudo_terminal import COLUMNS as WIDTH
from benchmarks.pseudo_terminal import LINES, time_until

if TYPE_CHECKING:  # torch and Textual are each loaded by only one of the processes
    from aotlens.model import Report
    from tui.app import AotlensApp

LAYERS = (7, 69, 347)
"""Layers of the GPT: about 1,000, 10,000 and 50,000 joint nodes."""
TABLES = ("Stages", "Graph", "Saved", "Memory")
"""Tabs whose tables grow with the graph."""
KEYS = ("pagedown", "down", "pageup", "up")
PRESSES = 25
"""Presses of each key in each table."""
CLOCKS = ("wall", "cpu")
SCRIPT = Path(__file__).parents[1] / "examples" / "train_gpt.py"
IN_SCRIPT = "Shakespeare"
"""A word of its first lines."""
STARTS = 10
FRAME_S = 0.01


def make(layers: int, file: str) -> None:
    """Write the report of a training step with that many layers."""
    import torch

    import aotlens
    from aotlens.model import dumps
    from benchmarks.models import gpt, gpt_inputs

    torch.set_num_threads(1)
    report = aotlens.inspect(gpt(layers), *gpt_inputs())
    Path(file).write_text(dumps(report), encoding="utf-8")


def show(file: str) -> None:
    """Print the app's times for that report, as JSON."""
    from aotlens.model import loads

    began = time.perf_counter()
    report = loads(Path(file).read_text(encoding="utf-8"))
    load_s = time.perf_counter() - began
    gc.collect()
    loaded_mib = resident_mib()
    timings = asyncio.run(walk(report))
    print(json.dumps({**timings, "load_s": load_s, "loaded_mib": loaded_mib, "shown_mib": resident_mib()}))


async def walk(report: "Report") -> dict[str, object]:
    """Paint the report first, then open and scroll each large table."""
    from benchmarks.tui_driver import NotingDriver, painted, press
    from tui.app import AotlensApp
    from tui.messages import ReportReady
    from tui.panes.registry import CHOICES
    from tui.widgets.bars import TitleBar

    app = AotlensApp("report")
    app.driver_class = NotingDriver
    running = asyncio.create_task(app.run_async())
    await painted(lambda: None)
    while not app.workbench.query_one(TitleBar).left:  # on a busy machine it is not yet ready for a report
        await asyncio.sleep(FRAME_S)
    first = await painted(lambda: app.post_message(ReportReady(report)))
    opened, keys = [], []
    for key in (key for key, label, _ in CHOICES if label in TABLES):
        opened.append(await painted(press(app, key)))
        await painted(press(app, "u"))  # every node and every layer by itself
        for move in KEYS:
            keys += [await painted(press(app, move)) for _ in range(PRESSES)]
    largest = max(report.targets, key=lambda target: sum(len(stage.nodes) for stage in target.stages))
    joint = largest.stage("joint") or largest.stages[-1]
    end(app)
    await running
    paints = {"first": [first], "open": opened, "key": keys}
    return {
        "key_answer": [paint.answer_s for paint in keys],
        "nodes": len(joint.nodes),
        **{f"{name}_wall": [paint.wall_s for paint in group] for name, group in paints.items()},
        **{f"{name}_cpu": [paint.cpu_s for paint in group] for name, group in paints.items()},
    }


def end(app: "AotlensApp") -> None:
    app.exit()


def resident_mib() -> float:
    """Return the resident memory of the process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def row(layers: int, folder: Path) -> tuple[Cell, ...]:
    file = folder / f"{layers}.json"
    if not file.exists():
        subprocess.run([sys.executable, "-m", "benchmarks.tui", "--make", str(layers), str(file)], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tui", "--show", str(file)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    timings = json.loads(done.stdout)
    return (
        f"GPT, {layers} layers",
        timings["nodes"],
        file.stat().st_size / 1e6,
        timings["load_s"],
        *(max(timings[f"first_{clock}"]) * 1e3 for clock in CLOCKS),
        *(max(timings[f"open_{clock}"]) * 1e3 for clock in CLOCKS),
        *(quantiles(timings[f"key_{clock}"], n=20)[-1] * 1e3 for clock in ("answer", *CLOCKS)),
        timings["loaded_mib"],
        timings["shown_mib"],
    )


def start() -> tuple[Cell, ...]:
    """Return the times from the start of `aotlens tui SCRIPT` until the script is on the screen."""
    command = [sys.executable, "-m", "aotlens", "tui", str(SCRIPT)]
    times_ms = [1e3 * time_until(IN_SCRIPT, command) for _ in range(STARTS)]
    return f"aotlens tui {SCRIPT.name}", min(times_ms), median(times_ms), max(times_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--make", nargs=2, metavar=("LAYERS", "FILE"), help="write one report")
    parser.add_argument("--show", metavar="FILE", help="measure the app on one report")
    parser.add_argument("--reports", type=Path, help="a folder to keep the reports in, for another run")
    arguments = parser.parse_args()
    if arguments.make:
        make(int(arguments.make[0]), arguments.make[1])
    elif arguments.show:
        show(arguments.show)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            folder = arguments.reports or Path(scratch)
            started = Table("Terminal app: start", START_COLUMNS, (start(),), START_NOTE)
            rows = tuple(row(layers, folder) for layers in LAYERS)
            publish("tui", [started, Table("Terminal app", COLUMNS, rows, NOTE)])


START_COLUMNS = ("command", "shortest ms", "median ms", "longest ms")
START_NOTE = (
    f"At {WIDTH}×{LINES}, {STARTS} times: wall time from the start of the process until its terminal has"
    " received the text of the script."
)
COLUMNS = (
    "report",
    "joint nodes",
    "JSON MB",
    "read s",
    "first paint ms",
    "CPU",
    "open a tab ms",
    "CPU",
    "key p95 ms",
    "linked p95 ms",
    "CPU",
    "report MiB",
    "app MiB",
)
NOTE = (
    f"At {WIDTH}×{LINES} and {tui.FRAMES_PER_S} frames per second, wall time and beside it this process's CPU"
    " time. First paint: from the report being there to"
    " the last paint of the overview; open a tab: the slowest of"
    f" {', '.join(TABLES)} when first looked at; key: from the key to the paint of the table, over lines and"
    " pages of theirs, every node and layer by itself; linked: to the last paint that it causes, of the"
    " source, the facts and the drawing."
    " Memory: resident with the report read, and after all of it was shown."
)

if __name__ == "__main__":
    main()
