"""What it takes to inspect a training step of 7 billion parameters: `examples/decoder_7b.py` under `--fake`.

Each case is one `aotlens inspect` with an empty cache.  Memory is that of all its processes together, what
they share counted once, looked at twice a second.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Cell, Table, publish, time_children

ROOT = Path(__file__).parent.parent
SCRIPT = "examples/decoder_7b.py"
CASES = ((2, ""), (32, ""), (32, "h100"))
"""Layers, and the GPU whose kernels are generated."""
EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Measured:
    wall_s: float
    cpu_s: float
    peak_bytes: int
    report: dict[str, Any]


def measure(layers: int, gpu: str) -> Measured:
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [sys.executable, "-m", "aotlens", "inspect", SCRIPT, "--fake", "--format", "json"]
        command += ["-o", report.name, "--time-limit", "3600", *(["--gpu", gpu] if gpu else [])]
        command += ["--", "--layers", str(layers)]
        peaks: list[int] = [0]
        began = time.monotonic()
        cpu_s = time_children(lambda: peaks.append(_watched(command)))
        wall_s = time.monotonic() - began
        return Measured(wall_s, cpu_s, max(peaks), json.loads(Path(report.name).read_text()))


def _watched(command: list[str]) -> int:
    """Return the peak in bytes of a command and all its descendants."""
    environment = os.environ | {"AOTLENS_CACHE_DIR": "", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(_bytes_of(pid) for pid in _tree(process.pid)))
            time.sleep(EVERY_S)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed with exit code {process.returncode}")
    return peak


def _tree(root: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    todo = [root]
    while todo:
        todo += children.get(todo[0], [])
        yield todo.pop(0)


def _bytes_of(pid: int) -> int:
    """Return its memory, with its share of shared pages."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def row(layers: int, gpu: str) -> tuple[Cell, ...]:
    measured = measure(layers, gpu)
    (target,) = measured.report["targets"]
    parameters = sum(
        model_input["tensor"]["bytes"]
        for model_input in target["inputs"]
        if model_input["kind"] == "Parameter"
    )
    nodes = sum(len(stage["nodes"]) for stage in target["stages"] if stage["name"] in ("forward", "backward"))
    return (
        f"{layers} layers{f', {gpu}' if gpu else ''}",
        parameters / 1e9,
        nodes,
        len(target["kernels"]),
        measured.wall_s,
        measured.cpu_s,
        measured.peak_bytes / 1e9,
    )


def main() -> None:
    columns = ("decoder_7b.py", "parameters GB", "nodes", "kernels", "wall s", "CPU s", "peak GB")
    note = (
        "`aotlens inspect --fake` of a training step in bfloat16, width 4096, 2048 tokens, with an empty"
        " cache; with a GPU's name also its kernels. Wall time depends on what else the machine does."
    )
    publish("fake", [Table("Fake", columns, tuple(row(*case) for case in CASES), note)])


if __name__ == "__main__":
    main()
