"""Time of the GPT example's first training step in successive processes, with caches on disk.

Each figure is a fresh process: CPU time, from after `import torch`, of the first forward and backward with
all compilation, C++ compilers included.
"""

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Table, arguments, publish, time_children

EXAMPLE = Path(__file__).parent.parent / "examples" / "train_gpt.py"
AS_EAGER = {"fallback_random": True}
WAYS: dict[str, dict[str, Any]] = {
    "aotlens, backend eager": {"backend": "aotlens", "options": {"backend": "eager", "cache": True}},
    "aotlens, Inductor": {"backend": "aotlens", "options": {"cache": True, **AS_EAGER}},
    "torch.compile, Inductor": {"backend": "inductor", "options": AS_EAGER},
}


def first_step(way: str) -> None:
    """Print the seconds of a first step, in its own process."""
    sys.path.insert(0, str(EXAMPLE.parent))
    import train_gpt  # type: ignore[import-not-found]  # the example, found beside its data

    torch.manual_seed(0)
    data, vocabulary = train_gpt.load_text()
    config = train_gpt.Config(vocabulary)
    model = train_gpt.GPT(config)
    batch = train_gpt.sample_batch(data, config)
    before = time.process_time()
    compilers = time_children(partial(_step, model, batch, WAYS[way]))
    sys.stdout.write(f"{time.process_time() - before + compilers}\n")


def _step(model: Any, batch: Any, how: dict[str, Any]) -> None:
    torch.compile(model, **how)(*batch).backward()


def seconds(way: str, ours: str, inductors: str) -> float:
    """Return the seconds of the first step in a process with these cache folders."""
    environment = os.environ | {
        "AOTLENS_CACHE_DIR": ours,
        "TORCHINDUCTOR_CACHE_DIR": inductors,
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "benchmarks.reuse", "--way", way]
    done = subprocess.run(
        command, env=environment, cwd=EXAMPLE.parent.parent, check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])


def measured(way: str, rounds: int) -> tuple[float, float, float]:
    """Measure without caches, in the next processes (best of several), and with an empty Inductor folder."""
    with tempfile.TemporaryDirectory() as folder:
        ours, inductors, emptied = (os.path.join(folder, name) for name in ("ours", "inductors", "emptied"))
        cold = seconds(way, ours, inductors)
        warm = min(seconds(way, ours, inductors) for _ in range(rounds))
        return cold, warm, seconds(way, ours, emptied)


def main() -> None:
    if "--way" in sys.argv:
        first_step(sys.argv[-1])
        return
    options = arguments("results kept between processes", rounds=2)
    rows = []
    for way in WAYS:
        cold, warm, emptied = measured(way, options.rounds)
        rows.append((way, cold, warm, f"{cold / warm:.1f}x", emptied))
    columns = ("first step", "cold s", "next process s", "cold over next", "Inductor's folder emptied s")
    note = "Imports after `import torch` count: Dynamo's, and Inductor's where its code runs."
    publish("reuse", [Table("Results kept between processes", columns, tuple(rows), note)])


if __name__ == "__main__":
    main()
