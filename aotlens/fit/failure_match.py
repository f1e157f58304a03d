"""Match what held GPU memory at a failure with the prediction for the script.  Stdlib only.

Invariant: each predicted storage counts for one holder at most, so predicted bytes are never counted twice.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from aotlens.fit.allocator import rounded
from aotlens.model.fit import Fit, FitAllocation, FitMoment, FitPoint, kind_name
from aotlens.model.memory_snapshot import (
    FailedAllocation,
    FailureMatch,
    Holder,
    MatchedHolder,
    MemorySnapshot,
)
from aotlens.model.source import Span

__all__ = ["failing_devices", "match_failure"]

Select = Callable[[Holder, FitAllocation], bool]


def match_failure(snapshot: MemorySnapshot, fit: Fit, script: str) -> FailureMatch:
    """Compare the holders with the storages that are predicted alive when the failing line runs."""
    predicted_at, when = _compared_moment(snapshot, fit)
    # The allocation of that moment is the one that failed, so nothing holds it.
    last = predicted_at.moment - 1 if predicted_at is not fit.at else predicted_at.moment
    alive = [_in_blocks(each) for each in fit.allocations if each.is_alive_at(last)]
    matched, rest = _matched(snapshot.holders, alive)
    kinds: Counter[str] = Counter()
    for allocation in rest:
        kinds[allocation.kind] += allocation.bytes
    return FailureMatch(
        script=script,
        predicted_at=predicted_at,
        when=when,
        held_bytes=snapshot.allocated_bytes,
        predicted_bytes=sum(each.bytes for each in alive),
        holders=matched,
        not_held=tuple(kinds.most_common()),
        failed_bytes=None if snapshot.failure is None else snapshot.failure.size_bytes,
        capacity_bytes=snapshot.capacity_bytes,
        step_bytes=fit.step_peak_bytes if fit.fits is None else fit.fits.reserved_bytes,
    )


def _compared_moment(snapshot: MemorySnapshot, fit: Fit) -> tuple[FitMoment, str]:
    """Return the point of the curve at the failing line or the highest of its phase, and why that one.

    Only stacks of the forward have the line of an operator; those of the backward end where it starts.
    """
    failure = snapshot.failure
    if failure is None:
        return fit.at, "at its peak"
    phase = failure.phase if failure.phase in ("backward", "optimizer") else "forward"
    points = [point for point in fit.curve if point.phase == phase]
    at_line = [point for point in points if _covers(point.span, failure.file, failure.line)]
    if phase == "forward" and at_line:
        return _failing_run(failure, snapshot.holders, fit, at_line).as_moment(), "when the failing line runs"
    if points and failure.phase != "forward":
        highest = max(points, key=_live_bytes)
        return highest.as_moment(), f"at the highest point of the {phase}, where it failed"
    return fit.at, "at its peak"


def _failing_run(
    failure: FailedAllocation, holders: Sequence[Holder], fit: Fit, at_line: Sequence[FitPoint]
) -> FitPoint:
    """Return the run of a line, which each layer may run, before which it holds what it held at the failure.

    Of runs that are equal in this, the one with the most bytes.
    """
    held = sum(row.size_bytes for row in holders if (row.file, row.line) == (failure.file, failure.line))
    own = [each for each in fit.allocations if _covers(each.span, failure.file, failure.line)]

    def distance(point: FitPoint) -> tuple[int, int]:
        predicted = sum(rounded(each.bytes) for each in own if each.is_alive_at(point.moment - 1))
        return abs(predicted - held), -point.live_bytes

    return min(at_line, key=distance)


def _live_bytes(point: FitPoint) -> int:
    return point.live_bytes


def _covers(span: Span | None, file: str, line: int) -> bool:
    """Return True if a line belongs to a span; files of another machine are known by their names."""
    if span is None or os.path.basename(span.file) != file.replace("\\", "/").rpartition("/")[2]:
        return False
    return span.line <= line <= span.end_line


def _in_blocks(allocation: FitAllocation) -> FitAllocation:
    return replace(allocation, bytes=rounded(allocation.bytes))


def _at_its_line(holder: Holder, allocation: FitAllocation) -> bool:
    """Only stacks of the forward have the line at which the prediction names the allocation."""
    has_line = holder.phase in ("forward", "parameters") and not _is_made_later(allocation)
    return has_line and _covers(allocation.span, holder.file, holder.line)


def _is_made_later(allocation: FitAllocation) -> bool:
    return _is_made_by_backward(allocation) or _is_made_by_optimizer(allocation)


def _is_made_by_backward(allocation: FitAllocation) -> bool:
    return allocation.kind == "gradient" or allocation.phase == "backward"


def _is_made_by_optimizer(allocation: FitAllocation) -> bool:
    return allocation.kind == "optimizer state" or allocation.phase == "optimizer"


def _of_optimizer(holder: Holder, allocation: FitAllocation) -> bool:
    return holder.phase == "optimizer" and _is_made_by_optimizer(allocation)


def _of_backward(holder: Holder, allocation: FitAllocation) -> bool:
    """Stacks of the backward end at the line that starts it, while the prediction names the forward's."""
    return holder.phase == "backward" and _is_made_by_backward(allocation)


def _of_compiled_code(holder: Holder, allocation: FitAllocation) -> bool:
    """Stacks of compiled code end at its call, while the prediction names the lines inside."""
    return holder.phase == "compiled code" and allocation.phase == "forward"


def _from_before(holder: Holder, allocation: FitAllocation) -> bool:
    return holder.phase == "not recorded" and allocation.made < 0


ROUNDS: tuple[Select, ...] = (_of_optimizer, _of_backward, _at_its_line, _of_compiled_code, _from_before)
"""In this order a holder gets the storages that no holder has yet; the more exact rule comes first."""


def _matched(
    holders: Sequence[Holder], alive: list[FitAllocation]
) -> tuple[tuple[MatchedHolder, ...], list[FitAllocation]]:
    """Return the holders with their storages, and the storages that are left."""
    owned: dict[int, list[FitAllocation]] = {index: [] for index in range(len(holders))}
    for select in ROUNDS:
        for index, holder in enumerate(holders):
            rest: list[FitAllocation] = []
            for allocation in alive:
                (owned[index] if select(holder, allocation) else rest).append(allocation)
            alive = rest
    rows = [_with_kinds(holder, owned[index]) for index, holder in enumerate(holders)]
    return tuple(rows), alive


def _with_kinds(holder: Holder, allocations: Sequence[FitAllocation]) -> MatchedHolder:
    kinds: Counter[str] = Counter()
    for allocation in allocations:
        kinds[kind_name(allocation)] += allocation.bytes
    return MatchedHolder(holder, sum(kinds.values()), tuple(kinds.most_common()))


def failing_devices(snapshots: Sequence[MemorySnapshot]) -> Iterator[MemorySnapshot]:
    """Yield the devices on which an allocation failed; all if none did."""
    failed = [snapshot for snapshot in snapshots if snapshot.failure is not None]
    yield from failed or snapshots
