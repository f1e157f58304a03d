"""Compare the ranks that `aotlens fit` predicts with two processes over gloo, and write the table.

    python scripts/fit/ranks_table.py [--write] [SCRIPT…]

Each script runs as two single ranks on fake tensors, and as two processes on real ones.  Their parameters,
gradients and optimizer state at the end of the step are counted from the optimizer; their peak comes from
the events of torch's CPU allocator.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotlens.model.codec import loads
from aotlens.model.fit import RankFit
from scripts.docs.marked_tables import write_table
from scripts.fit.cpu_table import calls_of, peak_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "fit.md"
BEGIN, END = "<!-- written by scripts/fit/ranks_table.py -->", "<!-- end of the ranks -->"
RANKS = 2
SECONDS = 300
KINDS = ("parameter", "gradient", "optimizer state")
SCRIPTS = (
    "corpus/programs/recipes/ddp_gloo.py",
    "corpus/programs/recipes/fsdp2_gloo.py",
    "corpus/programs/recipes/tensor_parallel.py",
    "examples/fsdp_llama_7b.py --layers 2 --width 250 --heads 5 --hidden 667 --vocabulary 999 --sequence 64",
)
"""The widths of the last are odd, so that shards are uneven."""


@dataclass(frozen=True, slots=True)
class Row:
    """One rank of one script; bytes by kind in the order of `KINDS`, then the peak."""

    script: str
    rank: int
    predicted: tuple[int, ...]
    measured: tuple[int, ...]
    allocated: int
    """The peak of torch's CPU allocator, which includes the copies that gloo makes."""

    @property
    def is_equal(self) -> bool:
        return self.predicted == self.measured


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--measure", nargs=4, metavar="WORD", help=argparse.SUPPRESS)
    parser.add_argument("scripts", nargs="*")
    arguments = parser.parse_args()
    if arguments.measure:
        rank, store, calls, length = arguments.measure
        print(json.dumps(Measurement(int(rank), store, int(calls), int(length)).run(arguments.scripts)))
        return 0
    rows = [row for script in arguments.scripts or SCRIPTS for row in compared(shlex.split(script))]
    print(table(rows))
    if arguments.write:
        write_table(PAGE, BEGIN, END, table(rows))
    return 0 if all(row.is_equal for row in rows) else 1


def compared(words: Sequence[str]) -> Iterator[Row]:
    """Predict each rank of a script, then run its two processes until the same step."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "fit.json")
        options = ("--ranks", str(RANKS), "--rank", "all", "--format", "json", "-o", str(report))
        _finish(_start("-m", "aotlens", "fit", *options, *words))
        fit = loads(report.read_text(encoding="utf-8")).fit
        assert fit is not None
        assert fit.distribution is not None
        store, (calls, length) = str(Path(folder, "store")), map(str, calls_of(fit))
        processes = [
            _start("scripts/fit/ranks_table.py", "--measure", str(rank), store, calls, length, "--", *words)
            for rank in range(RANKS)
        ]
        for predicted, process in zip(fit.distribution.ranks, processes, strict=True):
            measured = json.loads(_finish(process).splitlines()[-1])
            yield Row(words[0], predicted.rank, _predicted(predicted), tuple(measured[:-1]), measured[-1])


def _predicted(rank: RankFit) -> tuple[int, ...]:
    by_kind = [sum(row.bytes for row in rank.held if row.kind == kind) for kind in KINDS]
    return (*by_kind, rank.step_peak_bytes)


def _start(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


def _finish(process: "subprocess.Popen[str]") -> str:
    output, _ = process.communicate(timeout=SECONDS)
    if process.returncode:
        raise SystemExit(f"{process.args!r} failed with exit code {process.returncode}")
    return output


@dataclass(frozen=True, slots=True)
class Measurement:
    """One real process, which runs the script as one rank."""

    rank: int
    store: str
    calls: int
    length: int

    def run(self, words: Sequence[str]) -> list[int]:
        """Return the bytes of each kind after the last of `calls` calls of `step`, and the step's peaks.

        The peaks are that of the operators' storages, as the prediction counts them, and the allocator's.
        """
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.profiler import ProfilerActivity, profile

        from aotlens.fit.observer import observing_memory
        from aotlens.fit.rank_process import set_rank_variables
        from aotlens.fit.step import fit_of
        from aotlens.session.collector import Collector, StopScript
        from aotlens.session.compile_router import CompileRouter, intercepting_compile
        from aotlens.session.script.source import load_script, new_module, run_script

        script, *argv = words
        ends: list[int] = []
        held: list[int] = []

        def after_step(optimizer: Any, *ignored: Any) -> None:
            ends.append(time.time_ns())
            if len(ends) == self.calls:
                held.extend(held_bytes(optimizer))
                raise StopScript

        set_rank_variables(self.rank, RANKS)
        self.replace_launchers()
        register_optimizer_step_post_hook(after_step)
        loaded = load_script(script)
        module = new_module(loaded, "__main__")
        router = CompileRouter.for_observation(Collector(script))
        with (
            profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler,
            intercepting_compile(router),
            observing_memory() as observer,
            suppress(StopScript),
        ):
            run_script(loaded, module, tuple(argv))
        allocated = peak_of(profiler, ends[-1 - self.length], ends[-1])
        # In the steps, only gloo allocates without an operator: it copies the input of a reduce-scatter.
        first = observer.boundaries[0]
        observer.lives = [life for life in observer.lives if life.op or life.created_at < first]
        return [*held, fit_of(observer, is_fake=False).step_peak_bytes, allocated]

    def replace_launchers(self) -> None:
        """Let the script's function run in this process, with a store that both processes can find."""
        import torch.distributed as dist
        import torch.multiprocessing

        start = dist.init_process_group

        def init_process_group(backend: str, *ignored: Any, **options: Any) -> None:
            store = dist.FileStore(self.store, RANKS)
            start(backend, store=store, rank=self.rank, world_size=RANKS)

        def spawn(function: Any, args: Any = (), nprocs: int = 1, *ignored: Any, **options: Any) -> None:
            function(self.rank, *args)

        modules: tuple[Any, ...] = (dist, torch.multiprocessing)
        modules[0].init_process_group = init_process_group
        modules[1].spawn = spawn


def held_bytes(optimizer: Any) -> list[int]:
    """Return the bytes of parameters, gradients and optimizer state, each storage once."""
    from aotlens.torch_api.fake.process_groups import inner_tensors

    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter.grad for parameter in parameters]
    states = [value for state in optimizer.state.values() for value in state.values()]
    totals = []
    for values in (parameters, gradients, states):
        tensors = [tensor for value in values for tensor in inner_tensors(value)]
        storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}
        totals.append(sum(storage.nbytes() for storage in storages.values()))
    return totals


def table(rows: Sequence[Row]) -> str:
    """Return Markdown; equal predictions and measurements are written once."""
    lines = [
        "| script | rank | parameters | gradients | optimizer state | peak | peak of the allocator |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (_cell(*pair) for pair in zip(row.predicted, row.measured, strict=True))
        name = row.script.rpartition("/")[2]
        lines.append(f"| `{name}` | {row.rank} | {' | '.join(cells)} | {row.allocated:,} |")
    return "\n".join(lines)


def _cell(predicted: int, measured: int) -> str:
    return f"{predicted:,}" if predicted == measured else f"{predicted:,} ≠ {measured:,}"


if __name__ == "__main__":
    sys.exit(main())
