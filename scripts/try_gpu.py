"""Run everything that needs a GPU on a machine that has one: measured kernels, the benchmark, tests.

`python scripts/try_gpu.py`, or `make gpu`.  A part that fails or takes too long does not hide the others;
results go to `benchmarks/results/gpu-trial.json`, the benchmark's figures to `gpu.json` next to it.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "results" / "gpu-trial.json"
TOLD = 60
"""The last lines of a part's output that are stored."""
MOST_WORKERS = 12
"""Each process of the tests holds about half a gigabyte of the GPU for its context."""
AOTLENS = (sys.executable, "-m", "aotlens")
TRAINING = "examples/mixed_precision.py"
ASK = """\
import json, torch
here = torch.cuda.is_available()
major, minor = torch.cuda.get_device_capability() if here else (0, 0)
name = torch.cuda.get_device_name() if here else ""
found = {"gpu": name, "sm": f"sm_{major}{minor}", "torch": torch.__version__, "cuda": torch.version.cuda}
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    command: tuple[str, ...]
    limit_s: float = 1200.0


@dataclass(frozen=True, slots=True)
class Done:
    name: str
    command: str
    code: int | None
    """Its exit code; None if it was stopped at its time limit."""
    seconds: float
    last_lines: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.code == 0


def parts(sm: str) -> tuple[Part, ...]:
    """Return the parts, the quick ones first."""
    measured = ("--backend", "inductor", "--stage", "kernels")
    pytest = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:benchmark",  # where that plugin is installed, its warning about -n is an error under our settings
        "--show-capture=no",
        "-m",
        "gpu",
        "-n",
        str(max(1, min(MOST_WORKERS, (os.cpu_count() or 1) - 2))),
    )
    return (
        Part("what is installed", (*AOTLENS, "doctor")),
        Part("a training loop", (*AOTLENS, "run", TRAINING, "--backend", "inductor")),
        Part("a training loop beside eager", (*AOTLENS, "verify", TRAINING, "--backend", "inductor")),
        Part("its kernels, timed", (*AOTLENS, "inspect", TRAINING, *measured)),
        Part("their times beside floors", (*AOTLENS, "inspect", TRAINING, *measured, "--gpu", sm)),
        Part(
            "code for another GPU",
            (*AOTLENS, "inspect", TRAINING, "--gpu", "a100" if sm != "sm_80" else "h100"),
        ),
        Part("step times beside torch.compile", (sys.executable, "-m", "benchmarks.gpu")),
        Part("tests that need a GPU", (*pytest, "tests/gpu"), limit_s=3600.0),
    )


def run(part: Part) -> Done:
    """Run a part and end everything that it started."""
    started = time.monotonic()
    child = subprocess.Popen(
        part.command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        start_new_session=True,
    )
    code: int | None
    try:
        output, _ = child.communicate(timeout=part.limit_s)
        code = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        code = None
    lines = tuple(output.splitlines()[-TOLD:])
    shown = " ".join(word.replace(sys.executable, "python") for word in part.command)
    return Done(part.name, shown, code, round(time.monotonic() - started, 1), lines)


def run_all(chosen: Iterable[Part]) -> list[Done]:
    """Run each part and report it when it ends, with its output if it failed."""
    finished = []
    for part in chosen:
        sys.stderr.write(f"… {part.name}\n")
        done = run(part)
        ended = (
            "ok" if done.ok else "stopped at its time limit" if done.code is None else f"failed ({done.code})"
        )
        sys.stderr.write(f"  {ended}, {done.seconds:.0f} s: {done.command}\n")
        sys.stderr.write("".join(f"    {line}\n" for line in done.last_lines if not done.ok))
        sys.stderr.flush()
        finished.append(done)
    return finished


def keep(here: dict[str, str], finished: list[Done]) -> None:
    results = {"machine": here, "parts": [asdict(done) for done in finished]}
    KEPT.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="all that needs a GPU, tried", allow_abbrev=False)
    parser.add_argument("--only", metavar="WORD", help="the parts whose name holds that word; keeps nothing")
    options = parser.parse_args()
    answer = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    here = json.loads(answer.stdout) if answer.returncode == 0 else {"gpu": ""}
    if not here["gpu"]:
        why = answer.stderr.strip() or f"torch {here['torch']} finds none"
        sys.stderr.write(f"this needs a GPU that torch can use: {why}\n")
        return 2
    finished = run_all(part for part in parts(here["sm"]) if (options.only or "") in part.name)
    if options.only is None:
        keep(here, finished)
        sys.stderr.write(f"kept in {KEPT.relative_to(ROOT)}\n")
    failed = [done.name for done in finished if not done.ok]
    sys.stderr.write(f"{len(finished) - len(failed)} of {len(finished)} parts are fine on {here['gpu']}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
