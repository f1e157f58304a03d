"""Compare what `aotlens fit --gpu` predicts with torch's CUDA allocator on a machine that has the GPU.

    python scripts/fit/gpu_table.py --measure [--snapshots FOLDER] [SCRIPT…]    on that machine
    python scripts/fit/gpu_table.py --write                     the table from the last figures

Each script runs with `cuda` as torch's default device, in processes of its own: on fake tensors until its
steps repeat; on real tensors for as many steps, with what it compiles run by the engine's backend `eager`,
as the prediction counts it; and for as many steps as the user would run it.  The peaks are those of the last
step.  Scripts of the corpus are small, so some run a second time at the sizes of `LARGER`.  Figures go to
`benchmarks/results/fit-gpu.json`; FOLDER gets the allocator's history of each run.
"""

import argparse
import gc
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from aotlens.errors import UserError
from aotlens.fit.job import FitJob
from aotlens.model.fit import Fit
from aotlens.view.quantities import human_bytes
from scripts.docs.marked_tables import write_table
from scripts.fit.cpu_table import (
    EXAMPLES,
    PAGE,
    RECIPES,
    ROOT,
    argv_of,
    calls_of,
    in_fork,
    recipes,
    rows_of,
    table_text,
)

BEGIN, END = "<!-- written by scripts/fit/gpu_table.py -->", "<!-- end of the table of a GPU -->"
RESULTS = ROOT / "benchmarks" / "results" / "fit-gpu.json"
WORKERS = 12
MOST_EVENTS = 1_000_000
"""Of the allocator's history."""
LARGER: dict[str, dict[str, str]] = {
    "examples/train_gpt.py": {
        "context: int = 64": "context: int = 512",
        "layers: int = 2": "layers: int = 6",
        "heads: int = 4": "heads: int = 8",
        "width: int = 128": "width: int = 512",
    },
    "examples/batchnorm_cnn.py": {"sample_batch(32)": "sample_batch(4096)"},
    f"{RECIPES}/checkpoint_around_block.py": {
        "width: int = 64": "width: int = 1024",
        "randn(64, 64)": "randn(16384, 1024)",
    },
    f"{RECIPES}/checkpoint_nested.py": {"width=32": "width=1024", "randn(32, 32)": "randn(16384, 1024)"},
    f"{RECIPES}/checkpoint_selective.py": {
        "width=48, layers=2": "width=768, layers=4",
        "randn(8, 16, 48)": "randn(64, 128, 768)",
    },
    f"{RECIPES}/compiled_train_step.py": {
        "Linear(16, 48)": "Linear(16, 1024)",
        "Linear(48, 48)": "Linear(1024, 1024)",
        "Linear(48, 1)": "Linear(1024, 1)",
        "randn(4, 32, 16)": "randn(4, 16384, 16)",
    },
    f"{RECIPES}/distillation.py": {
        "randn(16, 3, 16, 16)": "randn(1024, 3, 32, 32)",
        "randint(0, 6, (16,))": "randint(0, 6, (1024,))",
    },
    f"{RECIPES}/ema_weights.py": {
        "Linear(10, 32), nn.BatchNorm1d(32)": "Linear(10, 1024), nn.BatchNorm1d(1024)",
        "Linear(32, 1)": "Linear(1024, 1)",
        "randn(160, 10)": "randn(16384, 10)",
    },
    f"{RECIPES}/gradient_clipping.py": {
        "Linear(12, 48)": "Linear(12, 1024)",
        "Linear(48, 48)": "Linear(1024, 1024)",
        "Linear(48, 2)": "Linear(1024, 2)",
        "randn(96, 12)": "randn(16384, 12)",
        "randn(96)": "randn(16384)",
    },
    f"{RECIPES}/lora_from_scratch.py": {
        "Linear(12, 48)": "Linear(12, 1024)",
        "Linear(48, 48)": "Linear(1024, 1024)",
        "Linear(48, 4)": "Linear(1024, 4)",
        "randn(64, 12)": "randn(16384, 12)",
    },
    f"{RECIPES}/nanogpt.py": {
        "n_layer: int = 2": "n_layer: int = 6",
        "n_embd: int = 48": "n_embd: int = 384",
        "- 1, (8,)": "- 1, (256,)",
    },
    f"{RECIPES}/regional_compilation.py": {
        "width: int = 64": "width: int = 512",
        "(16, 33)": "(64, 65)",
    },
    f"{RECIPES}/sdpa_variants.py": {
        "randn(4, 20, 32)": "randn(4, 1024, 32)",
        "arange(20)": "arange(1024)",
        "[20, 13, 17, 9]": "[1024, 700, 900, 500]",
    },
}
"""Texts in a script, and what replaces them: tensors are then larger than the workspaces of libraries."""
LARGER_RUN = "larger: "
"""Begins the name of such a run."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most bytes at once in a step."""

    requested: int
    """Sizes of tensors."""
    allocated: int
    """Blocks in use."""
    reserved: int
    """Segments."""


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One script; `problem` says why it has no figures."""

    script: str
    predicted: Peaks | None = None
    measured: Peaks | None = None
    as_user_runs_it: Peaks | None = None
    """With `torch.compile`'s own backend where the script compiles."""
    problem: str = ""

    @property
    def errors(self) -> tuple[float, float]:
        """The relative errors of allocated and reserved bytes."""
        assert self.predicted is not None
        assert self.measured is not None
        return (
            self.predicted.allocated / self.measured.allocated - 1,
            self.predicted.reserved / self.measured.reserved - 1,
        )


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--snapshots", type=Path)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("scripts", nargs="*")
    options = parser.parse_args()
    if options.measure:
        measure = partial(compared, gpu=options.gpu, snapshots=options.snapshots)
        machine, _ = in_fork(_machine)
        add = partial(Results(machine).of, measure=measure)
        rows_of(add, options.scripts or default_runs(), _line, WORKERS)
    if options.write:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        write_table(PAGE, BEGIN, END, table(results["machine"], [_row(row) for row in results["rows"]]))
    return 0


@dataclass(slots=True)
class Results:
    """The rows so far, written after each: a machine may be lent for minutes only."""

    machine: dict[str, str]
    rows: list[GpuRow] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run: str, measure: Callable[[str], GpuRow]) -> GpuRow:
        row = measure(run)
        with self.lock:
            self.rows.append(row)
            text = {"machine": self.machine, "rows": [asdict(row) for row in self.rows]}
            RESULTS.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
        return row


def default_runs() -> tuple[str, ...]:
    return (*(LARGER_RUN + script for script in LARGER), *EXAMPLES, *recipes())


def job_of(run: str, gpu: str) -> FitJob:
    """Return the job of a script, or of `larger: SCRIPT`."""
    script = run.removeprefix(LARGER_RUN)
    texts = {}
    if run != script:
        text = (ROOT / script).read_text(encoding="utf-8")
        for old, new in LARGER[script].items():
            if old not in text:
                raise UserError(f"{script} no longer contains {old!r}")
            text = text.replace(old, new)
        texts[script] = text
    return FitJob(script, tuple(argv_of(script)), gpu=gpu, texts=texts)


def compared(run: str, gpu: str, snapshots: Path | None) -> GpuRow:
    """Predict, then measure the same step twice."""
    job = job_of(run, gpu)
    fit, problem = in_fork(lambda: predicted(job))
    if problem:
        return GpuRow(run, problem=f"prediction: {problem}")
    if not fit.step:
        return GpuRow(run, problem="no optimizer step")
    name = f"{Path(job.path).stem}{'-larger' if job.texts else ''}.pickle"
    snapshot = None if snapshots is None else snapshots.resolve() / name
    peaks, problem = in_fork(lambda: measured(job, calls_of(fit), snapshot))
    if problem:
        return GpuRow(run, problem=problem)
    row = GpuRow(run, _peaks_of(fit), peaks)
    peaks, problem = in_fork(lambda: _peaks_of_run(job, calls_of(fit), None))
    return replace(row, as_user_runs_it=None if problem else peaks)


def predicted(job: FitJob) -> Fit:
    """Return what `aotlens fit --gpu` reports for the script on the GPU."""
    from aotlens.fit.child import fit_script

    _set_default_device()
    end, report = fit_script(job)
    if end.failure is not None or report.fit is None:
        raise UserError(end.failure.message if end.failure is not None else "no report")
    if report.incomplete:
        raise UserError(report.incomplete)
    if report.fit.device != "cuda":
        raise UserError("it computes nothing on the GPU")
    return report.fit


def _set_default_device() -> None:
    """Let the script create its tensors on the GPU, but an optimizer's counters on the CPU, as by default."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def use(device: str) -> Callable[..., None]:
        return lambda *ignored: torch.set_default_device(device)

    torch.set_default_device("cuda")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):  # later releases name the CPU themselves
        register_optimizer_step_pre_hook(use("cpu"))
        register_optimizer_step_post_hook(use("cuda"))


def _peaks_of(fit: Fit) -> Peaks:
    assert fit.fits is not None
    return Peaks(fit.step_peak_bytes, fit.fits.allocated_bytes, fit.fits.reserved_bytes)


def measured(job: FitJob, calls: tuple[int, int], snapshot: Path | None) -> Peaks:
    """Return the peaks with compiled code run operator by operator."""
    from aotlens.session.collector import Collector
    from aotlens.session.compile_router import CompileRouter, intercepting_compile

    collector = Collector(job.path)
    with ExitStack() as stack:
        stack.enter_context(collector.listening())
        stack.enter_context(intercepting_compile(CompileRouter.for_observation(collector)))
        return _peaks_of_run(job, calls, snapshot)


def _peaks_of_run(job: FitJob, calls: tuple[int, int], snapshot: Path | None) -> Peaks:
    from aotlens.session.collector import StopScript
    from aotlens.session.script.edited import importing_edited, load_edited
    from aotlens.session.script.source import new_module, run_script

    _set_default_device()
    loaded = load_edited(job.path, job.texts)
    module = new_module(loaded, "__main__")
    found: list[Peaks] = []
    with (
        _counting_steps(calls, found),
        _recording(snapshot),
        suppress(StopScript),
        importing_edited(job.texts),
    ):
        run_script(loaded, module, job.argv)
    if not found:
        raise UserError("its training ended before the step that was predicted")
    return found[0]


@contextmanager
def _counting_steps(calls: tuple[int, int], found: list[Peaks]) -> Iterator[None]:
    """Add the peaks of the last step and end the script there."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from aotlens.session.collector import StopScript
    from aotlens.torch_api.fake.process_groups import in_backward

    last, length = calls
    count = 0

    def after_step(*ignored: Any) -> None:
        nonlocal count
        if in_backward():  # a hook updates one parameter
            return
        count += 1
        gc.collect()
        if count == last - length:
            torch.cuda.reset_peak_memory_stats()
        if count == last:
            stats = torch.cuda.memory_stats()
            names = ("requested_bytes", "allocated_bytes", "reserved_bytes")
            found.append(Peaks(*(stats[f"{name}.all.peak"] for name in names)))
            raise StopScript

    handle = register_optimizer_step_post_hook(after_step)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _recording(snapshot: Path | None) -> Iterator[None]:
    """Write the allocator's history and state to a file at the end."""
    import torch

    if snapshot is None:
        yield
        return
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=MOST_EVENTS)
    yield
    snapshot.parent.mkdir(parents=True, exist_ok=True)
    torch.cuda.memory._dump_snapshot(str(snapshot))


def _machine() -> dict[str, str]:
    import torch

    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }


def _row(stored: dict[str, Any]) -> GpuRow:
    peaks = {
        name: Peaks(**stored[name])
        for name in ("predicted", "measured", "as_user_runs_it")
        if stored[name] is not None
    }
    return GpuRow(stored["script"], problem=stored["problem"], **peaks)


def table(machine: dict[str, str], rows: Sequence[GpuRow]) -> str:
    """Return Markdown, with scripts without figures and their reasons below."""
    done = sorted((row for row in rows if not row.problem), key=_largest_error)
    within = sum(_largest_error(row) <= 0.05 for row in done)
    return table_text(
        f"{machine['gpu']}, torch {machine['torch']}: both within 5 % for {within} of {len(done)} scripts.",
        ("allocated, predicted", "measured", "reserved, predicted", "measured", "as you run it"),
        map(_table_row, done),
        ((row.script, row.problem) for row in rows),
    )


def _largest_error(row: GpuRow) -> float:
    return max(map(abs, row.errors))


def _table_row(row: GpuRow) -> str:
    assert row.predicted is not None
    assert row.measured is not None
    cells = (row.predicted.allocated, row.measured.allocated, row.predicted.reserved, row.measured.reserved)
    last = "" if row.as_user_runs_it is None else human_bytes(row.as_user_runs_it.allocated)
    return f"| `{row.script}` | {' | '.join(map(human_bytes, cells))} | {last} |"


def _line(row: GpuRow) -> str:
    if row.problem:
        return f"{row.script}: {row.problem}"
    allocated, reserved = row.errors
    return f"{row.script}: allocated {100 * allocated:+.1f} %, reserved {100 * reserved:+.1f} %"


if __name__ == "__main__":
    sys.exit(main())
