"""The memory of a step in words, for text and for the rows of other front ends.

Invariant: the rows of the kinds add up to the peak; a last row counts the lines that are cut.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aotlens.model.fit import Fit, FitLine, FitPoint, GpuFit, KindBytes, kind_name
from aotlens.model.spans import location, text_of
from aotlens.view.plots import LEVELS, buckets
from aotlens.view.quantities import counted, human_bytes
from aotlens.view.step_memory.advice import advice_lines, plan_lines
from aotlens.view.step_memory.largest import largest_lines
from aotlens.view.step_memory.moments import moment_words
from aotlens.view.step_memory.ranks import distribution_lines, ranks_words

__all__ = [
    "FitRow",
    "fit_lines",
    "gpu_lines",
    "gpu_words",
    "kind_rows",
    "line_rows",
    "peak_words",
    "phase_words",
    "ran_words",
    "run_phase_words",
]

MOST_LINES = 12
CURVE_WIDTH = 72


@dataclass(frozen=True, slots=True)
class FitRow:
    """One part of the peak."""

    size_bytes: int
    what: str
    detail: str = ""


def peak_words(fit: Fit) -> str:
    """`5.2 MiB at the peak of step 3, in the backward: aten.mm.default for line train.py:40`."""
    if not fit.curve:
        return "no operator allocates memory"
    step = f"step {fit.step}" if fit.step else "the whole run, which has no optimizer step"
    return f"{human_bytes(fit.step_peak_bytes)} at the peak of {step}: {moment_words(fit.at)}"


def kind_rows(kinds: Sequence[KindBytes]) -> tuple[FitRow, ...]:
    """`parameter`, `optimizer state exp_avg`, …, the largest first."""
    return tuple(FitRow(row.bytes, kind_name(row), counted(row.count, "storage")) for row in kinds)


def line_rows(lines: Sequence[FitLine], most: int | None = MOST_LINES) -> tuple[FitRow, ...]:
    """Return the lines that allocated the memory in use at the peak, the largest first."""
    shown = lines if most is None else lines[:most]
    rows = [FitRow(row.bytes, row.kind, _line_words(row)) for row in shown]
    if rest := lines[len(shown) :]:
        total_bytes = sum(row.bytes for row in rest)
        rows.append(FitRow(total_bytes, f"{counted(len(rest), 'more row')} (--full)"))
    return tuple(rows)


def _line_words(row: FitLine) -> str:
    if row.span is None:
        return "no line of yours"
    return f"{location(row.span)}  {row.text or text_of(row.span)}".rstrip()


def gpu_words(gpu: GpuFit) -> str:
    """Return whether the step fits on the GPU, and the margin."""
    verb = "fits" if gpu.ok else "does not fit"
    margin = human_bytes(abs(gpu.margin_bytes))
    rest = f"{margin} remain free" if gpu.ok else f"{margin} too little"
    return (
        f"{verb} {gpu.gpu}: {human_bytes(gpu.reserved_bytes)} reserved of {human_bytes(gpu.capacity_bytes)},"
        f" {rest}"
    )


def curve_text(curve: Sequence[FitPoint], width: int = CURVE_WIDTH) -> str:
    """Return one bar that shows the highest point of each part of the step."""
    parts = buckets([point.live_bytes for point in curve], width)
    top = max(parts, default=0) or 1
    return "".join(LEVELS[part * len(LEVELS) // (top + 1)] for part in parts)


def fit_lines(fit: Fit, *, is_full: bool = False, diff: str = "") -> Iterator[str]:
    """Yield the whole answer as plain lines: a plan for a target comes first, with its diff."""
    if fit.plan is not None:
        yield from plan_lines(fit.plan)
        yield from ("", *diff.splitlines()) if diff else ()
        yield ""
    yield peak_words(fit)
    if not fit.curve:
        return
    yield f"  {ran_words(fit)}"
    if fit.distribution is not None:
        yield f"  {ranks_words(fit.distribution)}"
    if fit.setup_peak_bytes > fit.step_peak_bytes:
        yield f"  the peak before this step is {human_bytes(fit.setup_peak_bytes)}"
    if fit.fits is not None:
        yield ""
        yield from gpu_lines(fit.fits)
    if fit.batch is not None:
        yield ""
        yield from largest_lines(fit.batch)
    yield ""
    yield "At the peak, by kind"
    yield from _table(kind_rows(fit.by_kind))
    yield ""
    yield "At the peak, by the line that allocated it"
    yield from _table(line_rows(fit.by_line, None if is_full else MOST_LINES))
    yield ""
    yield phase_words(fit)
    yield f"  {curve_text(fit.curve)}"
    if fit.run_phases:
        yield run_phase_words(fit)
    if fit.distribution is not None:
        yield ""
        yield from distribution_lines(fit.distribution, is_full=is_full)
    yield ""
    yield "Assumptions"
    yield from (f"  - {line}" for line in fit.assumptions)
    if fit.advice:
        yield ""
        yield from advice_lines(fit)


def ran_words(fit: Fit) -> str:
    """`ran on fake tensors without memory; counts memory on cpu; the previous step allocates the same`."""
    how = "fake tensors without memory" if fit.is_fake else "real tensors"
    repeats = "the previous step allocates the same" if fit.is_periodic else "no step repeats another"
    return f"ran on {how}; counts memory on {fit.device}; {repeats if fit.step else 'nothing repeats'}"


def phase_words(fit: Fit) -> str:
    """`Over the step: forward 21.5 MiB, backward 22.7 MiB, optimizer 7.0 MiB`."""
    peaks = ", ".join(f"{row.phase} {human_bytes(row.peak_bytes)}" for row in fit.phases)
    return f"Over the {'step' if fit.step else 'run'}: {peaks}"


def run_phase_words(fit: Fit) -> str:
    """`Anywhere in the run: evaluation 3.1 MiB, checkpoint saving 2.0 MiB; backward needs the most`."""
    peaks = ", ".join(f"{row.phase} {human_bytes(row.peak_bytes)}" for row in fit.run_phases)
    highest = max((*fit.phases, *fit.run_phases), key=lambda row: row.peak_bytes)
    return f"Anywhere in the run: {peaks}; {highest.phase} needs the most"


def gpu_lines(gpu: GpuFit) -> Iterator[str]:
    """Yield whether the step fits the GPU, and the memory that is subtracted or assumed."""
    yield gpu_words(gpu)
    yield (
        f"  {human_bytes(gpu.memory_bytes)} on the data sheet, less {human_bytes(gpu.context_bytes)} assumed"
        f" for the CUDA context and {human_bytes(gpu.reserve_bytes)} for workspaces of libraries"
    )
    yield (
        f"  reserved by a model of torch's caching allocator; {human_bytes(gpu.allocated_bytes)} of it is"
        " allocated in blocks at the peak"
    )


def _table(rows: Sequence[FitRow]) -> Iterator[str]:
    width = max((len(row.what) for row in rows), default=0)
    for row in rows:
        yield f"  {human_bytes(row.size_bytes):>10}  {row.what:<{width}}  {row.detail}".rstrip()
