"""Run one program in every way, one run after the other, and store the measurements.

Invariant: each compiler starts with its own empty caches, its later runs use those of its first one, and runs
that are compared with each other follow each other directly.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.process import run_process
from corpus.program import Program
from corpus.records import Graphs, Measured, NotCompiled, Run
from corpus.store import ROOT, key_of
from corpus.values import compare_dumps
from corpus.verdicts import first_step_ratio, steady_ratio

__all__ = ["Bench", "Limits", "environment", "measure", "read_graphs"]

WORTH_ANOTHER_ROUND = 1.05
"""Step time, ours / inductor, above which the warm runs of both are repeated."""
WORTH_ANOTHER_COLD_ROUND = 1.15
"""The same for the first step, where both compilers start again with empty caches."""
OBSERVER = Path(__file__).parent / "observer"


@dataclass(frozen=True, slots=True)
class Limits:
    """The time limit of a run, and how often the warm runs are repeated."""

    seconds: float = 600.0
    warm_rounds: int = 2
    most_rounds: int = 6
    """Warm runs of a program whose steps seem slower than inductor's, to detect noise."""
    more_cold_rounds: int = 2
    """Further runs with empty caches of a program whose first step seems slower."""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Bench:
    """The folders of one program's runs."""

    program: Program
    folder: Path
    limits: Limits

    def run(self, way: str, memory_lines: str = "") -> Run:
        compiler = "aotlens" if way == "verify" else way.removesuffix("-warm")
        dump = self.folder / f"dump-{way}"
        work = self.folder / f"work-{way}"
        caches = self.folder / f"caches-{compiler}"
        if way.endswith("-cold"):
            shutil.rmtree(caches, ignore_errors=True)
        for folder in (dump, work, caches):
            folder.mkdir(exist_ok=True)
        env = environment(self.program, way, dump, caches)
        if memory_lines:
            env["CORPUS_MEMORY_LINES"] = memory_lines
        ran = run_process(self.command(way), env, work, self.limits.seconds)
        return Run(way, ran, _peak(dump))

    def command(self, way: str) -> list[str]:
        script = [str(self.program.path), *self.program.args]
        if way.startswith(("eager", "inductor")):
            return [sys.executable, *script]
        reported = ["--report", str(self.report)]
        options = {
            "aotlens": reported,
            "verify": ["--verify"],
            "quick": ["--verify", "--backend", "eager", *reported],
        }.get(way, [])
        return [sys.executable, "-m", "aotlens", "run", *options, *script]

    @property
    def report(self) -> Path:
        return self.folder / "report.json"


def environment(program: Program, way: str, dump: Path, caches: Path) -> dict[str, str]:
    """Return the variables of one run: one thread, no network, caches in the folder.

    For eager the observer passes `disable=True` to `torch.compile`: with TORCH_COMPILE_DISABLE torch ends
    programs that set `fullgraph=True`, and operators such as `scan` do not run.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "AOTLENS"))}
    env |= {
        "PYTHONPATH": os.pathsep.join([str(OBSERVER), str(ROOT)]),
        "PYTHONUNBUFFERED": "1",
        "CORPUS_SCRIPT": os.path.realpath(program.path),
        "CORPUS_DUMP": str(dump),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "AOTLENS_CACHE_DIR": str(caches / "aotlens"),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": str(caches / "huggingface"),
        "TOKENIZERS_PARALLELISM": "false",
        "WANDB_MODE": "disabled",
        "CUDA_VISIBLE_DEVICES": "",
    }
    if way == "eager":
        env["CORPUS_EAGER"] = "1"
    return env


def measure(program: Program, limits: Limits) -> Measured:
    """Return every run of the program; none after a failed run in eager."""
    key = key_of(program)
    with tempfile.TemporaryDirectory(prefix="corpus-") as name:
        bench = Bench(program, Path(name), limits)
        runs = tuple(_runs(bench))
        values = {
            compiler: compare_dumps(bench.folder / f"dump-{compiler}", bench.folder / "dump-eager")
            for compiler in ("inductor", "aotlens")
            if any(run.way == compiler for run in runs)
        }
        graphs = read_graphs(bench.report)
    return Measured(program.name, key.program_digest, key.engine, key.versions, runs, graphs, values)


def _runs(bench: Bench) -> Iterator[Run]:
    eager = bench.run("eager")
    yield eager
    if eager.ran.timed_out:
        return
    lines = len(eager.ran.lines)
    window = f"{lines - 2}-{lines}" if lines >= 6 else ""
    cold = [bench.run("inductor", window), bench.run("aotlens", window)]
    yield from cold
    yield from _cold_runs(bench, cold)
    yield from _warm_runs(bench, cold)
    if bench.limits.verify:  # with eager's kernels where Inductor exceeds the limit
        yield bench.run("quick" if cold[0].ran.timed_out else "verify")


def _cold_runs(bench: Bench, cold: Sequence[Run]) -> Iterator[Run]:
    """Yield rounds with empty caches of both, while our first step seems slower than inductor's."""
    runs = list(cold)
    for _ in range(bench.limits.more_cold_rounds):
        ratio = first_step_ratio(bench.program, runs).value
        if ratio is None or ratio <= WORTH_ANOTHER_COLD_ROUND:
            return
        latest = [bench.run(f"{run.way}-cold") for run in cold]
        runs += latest
        yield from latest


def _warm_runs(bench: Bench, cold: Sequence[Run]) -> Iterator[Run]:
    """Yield rounds with a second process of each, more of them while our steps seem slower."""
    runs = list(cold)
    ways = [f"{run.way}-warm" for run in cold if not run.ran.timed_out]
    for done in range(bench.limits.most_rounds):
        if done >= bench.limits.warm_rounds and not _looks_slower(bench.program, runs):
            return
        latest = [bench.run(way) for way in ways]
        runs += latest
        yield from latest


def _looks_slower(program: Program, runs: Sequence[Run]) -> bool:
    ratio = steady_ratio(program, runs).value
    return ratio is not None and ratio > WORTH_ANOTHER_ROUND


def _peak(dump: Path) -> int | None:
    try:
        return int(json.loads((dump / "memory.json").read_text())["peak_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def read_graphs(report: Path) -> Graphs | None:
    """Return the counts of the report; None if the run ended before it was written."""
    try:
        data = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Graphs(len(data["targets"]), tuple(map(_not_compiled, data.get("not_compiled", ()))))


def _not_compiled(entry: dict[str, Any]) -> NotCompiled:
    span = entry.get("span")
    location = f"{Path(span['file']).name}:{span['line']}" if span else ""
    return NotCompiled(entry["name"], entry["code"], entry["cause"], entry["reason"], location)
