"""How every benchmark measures, prints and stores its results.

Promise: contenders take turns within one process, so that a busy machine slows all of them; the median of the
rounds is compared.
"""

import argparse
import gc
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from statistics import median, quantiles

from rich.console import Console
from rich.table import Table as RichTable

RESULTS = Path(__file__).parent / "results"
WIDTH = 160
"""Of tables in a file, in characters."""

Cell = str | float


@dataclass(frozen=True, slots=True)
class Samples:
    """One contender's rounds on one case."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Return half the interquartile range, relative to the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / self.median_s


@dataclass(frozen=True, slots=True)
class Table:
    """One table of results, as printed and as stored."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str
    """What was measured and how, in a sentence or two."""


def take_turns(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Samples]:
    """Return each contender's seconds over `rounds` in turns, with a different first contender each time.

    A contender measures itself, so that its preparation is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            # Garbage of the previous contender is collected first; collections that a contender's own
            # allocations cause, or that it requests, count.
            gc.collect()
            seconds[name].append(contenders[name]())
    return {name: Samples(tuple(values)) for name, values in seconds.items()}


def time_once(action: Callable[[], object]) -> float:
    """Return the CPU seconds of this process for one run, so that other programs are not counted."""
    start = time.process_time()
    action()
    return time.process_time() - start


def time_children(action: Callable[[], object]) -> float:
    """Return the CPU seconds of the processes that an action starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    action()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def time_loop(action: Callable[[], object], calls: int) -> float:
    """Return the CPU seconds of one call: the mean over a loop, without garbage collection like `timeit`."""
    gc.disable()
    try:
        start = time.process_time()
        for _ in range(calls):
            action()
        return (time.process_time() - start) / calls
    finally:
        gc.enable()


def growth_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of log(time) over log(size) by least squares: 1 is linear."""
    xs, ys = [log(size) for size in sizes], [log(value) for value in seconds]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    rise = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return rise / sum((x - x_mean) ** 2 for x in xs)


def machine_facts() -> dict[str, str | int | float]:
    import torch  # here, so that imports.py can use the harness without it

    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def cpu_name() -> str:
    """Return the processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def publish(name: str, tables: Sequence[Table]) -> None:
    """Print the tables, and store them with the machine's facts in `results/NAME.json`."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for table in tables:
        printed = RichTable(title=table.title, caption=table.note, caption_justify="left")
        for number, column in enumerate(table.columns):
            printed.add_column(column, justify="left" if number == 0 else "right", no_wrap=number < 2)
        for row in table.rows:
            printed.add_row(*(show_cell(cell) for cell in row))
        console.print(printed)
    RESULTS.mkdir(exist_ok=True)
    results = {"benchmark": name, "machine": machine_facts(), "tables": [asdict(table) for table in tables]}
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n")


def show_cell(cell: Cell) -> str:
    """Return numbers with three significant digits, whole ones with thousands separators."""
    if isinstance(cell, str):
        return cell
    if cell == int(cell) or abs(cell) >= 100:
        return f"{round(cell):,}"
    return f"{cell:.3g}"


def arguments(description: str, rounds: int) -> argparse.Namespace:
    """Parse the command line of every benchmark: `--rounds N`."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=rounds, help="turns for each contender")
    return parser.parse_args()
