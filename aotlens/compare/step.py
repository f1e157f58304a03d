"""Two results of `aotlens fit`: what changed in the peak, by kind and by line. Standard library only.

Invariant: the changes of the kinds add up to the change of the peak, and so do those of the lines.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aotlens.model.fit import Fit, FitLine, FitMoment, GpuFit, kind_name
from aotlens.model.spans import file_name, line_of
from aotlens.view.quantities import human_bytes, signed_bytes

__all__ = ["StepChange", "StepPart", "part_cells", "step_change", "step_gpu_text", "step_peak_text"]


@dataclass(frozen=True, slots=True)
class StepPart:
    """One kind, or one line, whose bytes at the peak differ."""

    name: str
    """The kind, `optimizer state exp_avg`; for a line its expression and kind."""
    before_bytes: int
    after_bytes: int
    line: str = ""
    """`train.py:64`, in the new script, or in the old one where the new one has no such line."""

    @property
    def change_bytes(self) -> int:
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True, slots=True)
class StepChange:
    """The step of two scripts, or of two states of one."""

    before_bytes: int
    after_bytes: int
    before_at: FitMoment
    """When the peak was."""
    after_at: FitMoment
    kinds: tuple[StepPart, ...] = ()
    """Those that differ, the largest change first."""
    lines: tuple[StepPart, ...] = ()
    """Those that differ, the largest change first."""
    before_gpu: GpuFit | None = None
    after_gpu: GpuFit | None = None

    @property
    def is_empty(self) -> bool:
        return self.before_bytes == self.after_bytes and not (self.kinds or self.lines)


def step_change(old: Fit, new: Fit) -> StepChange:
    """Pair kinds by name, and lines by file, expression and kind, since edits move lines.

    Files that only one side has are paired too: the script may be a copy under another name.
    """
    kinds = ({kind_name(row): row.bytes for row in fit.by_kind} for fit in (old, new))
    common = _files(old) & _files(new)
    lines = (_lines(fit.by_line, common) for fit in (old, new))
    return StepChange(
        old.step_peak_bytes,
        new.step_peak_bytes,
        old.at,
        new.at,
        tuple(_kind_parts(*kinds)),
        tuple(_line_parts(*lines)),
        old.fits,
        new.fits,
    )


def _kind_parts(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[StepPart]:
    parts = (StepPart(key, before.get(key, 0), after.get(key, 0)) for key in dict.fromkeys((*after, *before)))
    yield from _changed(parts)


def _files(fit: Fit) -> frozenset[str]:
    return frozenset(file_name(row.span.file) for row in fit.by_line if row.span is not None)


def _lines(rows: Sequence[FitLine], common: frozenset[str]) -> dict[Hashable, list[FitLine]]:
    """Return the rows by what pairs them; `common` has the files of both results."""
    groups: dict[Hashable, list[FitLine]] = {}
    for row in rows:
        name = file_name(row.span.file) if row.span is not None else ""
        file = name if name in common else ""
        expression: str | int = row.text or (row.span.line if row.span is not None else "")
        groups.setdefault((file, expression, row.kind), []).append(row)
    return groups


def _line_parts(
    before: Mapping[Hashable, list[FitLine]], after: Mapping[Hashable, list[FitLine]]
) -> Iterator[StepPart]:
    """Yield the lines that differ; equal expressions of one kind count together."""
    parts = []
    for key in dict.fromkeys((*after, *before)):
        old, new = before.get(key, []), after.get(key, [])
        first = (new or old)[0]
        name = f"{first.text or 'no line of yours'}, {first.kind}"
        before_bytes, after_bytes = (sum(row.bytes for row in rows) for rows in (old, new))
        parts.append(StepPart(name, before_bytes, after_bytes, line_of(first.span)))
    yield from _changed(parts)


def _changed(parts: Iterator[StepPart] | Sequence[StepPart]) -> list[StepPart]:
    changed = (part for part in parts if part.change_bytes)
    return sorted(changed, key=lambda part: -abs(part.change_bytes))


def step_peak_text(change: StepChange) -> str:
    """`22.7 MiB → 18.1 MiB (−4.6 MiB), in the backward, before in the forward`."""
    old, new = human_bytes(change.before_bytes), human_bytes(change.after_bytes)
    phase = f"in the {change.after_at.phase}"
    if change.before_at.phase != change.after_at.phase:
        phase += f", before in the {change.before_at.phase}"
    return f"{old} → {new} ({signed_bytes(change.after_bytes - change.before_bytes)}), {phase}"


def step_gpu_text(change: StepChange) -> str:
    """`fits T4, before it did not: 38.0 MiB → 30.0 MiB reserved`; empty unless both are for one GPU."""
    old, new = change.before_gpu, change.after_gpu
    if old is None or new is None or old.gpu != new.gpu:
        return ""
    verb = "fits" if new.ok else "does not fit"
    before = "" if old.ok == new.ok else ", before it did not" if new.ok else ", before it did"
    reserved = f"{human_bytes(old.reserved_bytes)} → {human_bytes(new.reserved_bytes)} reserved"
    return f"{verb} {new.gpu}{before}: {reserved} of {human_bytes(new.capacity_bytes)}"


def part_cells(part: StepPart) -> tuple[str, str, str, str]:
    """Return change, before and after, line, and name: the cells of every format."""
    before_after = f"{human_bytes(part.before_bytes)} → {human_bytes(part.after_bytes)}"
    return signed_bytes(part.change_bytes), before_after, part.line, part.name
