"""What our imports cost a command or a program, each in a fresh process."""

import subprocess
import sys
from functools import partial

from benchmarks.harness import Table, arguments, publish, take_turns, time_children

CASES = {
    "python, nothing else": ("-c", "pass"),
    "import aotlens": ("-c", "import aotlens"),
    "aotlens --help": ("-m", "aotlens", "--help"),
    "import torch": ("-c", "import torch"),
    "import aotlens.pipeline": ("-c", "import aotlens.pipeline"),
    "import functorch.compile": ("-c", "import functorch.compile"),
}


def run_python(command: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)


def loads_torch(command: tuple[str, ...]) -> bool:
    """Return True if the process imports torch, by Python's own list of imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], check=True, capture_output=True, text=True
    )
    return any(line.rpartition("|")[2].strip() == "torch" for line in done.stderr.splitlines())


def main() -> None:
    options = arguments("import times", rounds=7)
    samples = take_turns(
        {name: partial(time_children, partial(run_python, command)) for name, command in CASES.items()},
        options.rounds,
    )
    floor = samples["python, nothing else"].median_s
    rows = tuple(
        (
            name,
            timing.median_s * 1e3,
            (timing.median_s - floor) * 1e3,
            f"±{timing.spread:.0%}",
            "yes" if loads_torch(CASES[name]) else "no",
        )
        for name, timing in samples.items()
    )
    columns = ("process", "ms", "over python ms", "spread", "loads torch")
    note = f"A fresh process each, warm page cache; CPU time, median of {options.rounds} rounds in turns."
    publish("imports", [Table("Imports", columns, rows, note)])


if __name__ == "__main__":
    main()
