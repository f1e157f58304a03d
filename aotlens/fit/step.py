"""The report of one step, from what the observer noted.

Invariant: the curve, the composition at the peak, and the allocations are three views of one set of lives:
the bytes of the kinds add up to the peak, and so do those of the lines.
"""

from collections import Counter
from dataclasses import replace

from aotlens.fit.observer import Observer, StorageLife
from aotlens.report.fit_records import (
    Fit,
    FitAllocation,
    FitKind,
    FitLine,
    FitMoment,
    FitPoint,
    KindBytes,
    PhasePeak,
)

__all__ = ["fit_of"]


def fit_of(observer: Observer, is_fake: bool = True) -> Fit:
    """The last complete step; without an optimizer's step, the whole run."""
    ends = observer.boundaries
    first, last = (ends[-2], ends[-1]) if len(ends) > 1 else (0, ends[0] if ends else observer.moments)
    lives = [life for life in observer.lives if life.made < last and not _ends_before(life, first)]
    allocations = tuple(_allocation(observer, life, first, last) for life in lives)
    curve = _curve(allocations)
    if not curve:
        return Fit(0, FitMoment("setup"), is_fake=is_fake)
    top = max(curve, key=lambda point: point.live_bytes)
    alive = [each for each in allocations if each.made <= top.moment and not _is_freed(each, top.moment)]
    return Fit(
        step_peak_bytes=top.live_bytes,
        at=FitMoment(top.phase, top.op, top.span, top.moment),
        by_kind=_by_kind(alive),
        by_line=_by_line(alive),
        curve=curve,
        phases=_phases(curve),
        allocations=allocations,
        device=Counter(each.device for each in alive).most_common(1)[0][0],
        is_fake=is_fake,
        step=len(ends),
        is_periodic=is_periodic(observer),
        setup_peak_bytes=_peak_before(observer, first),
    )


def is_periodic(observer: Observer) -> bool:
    """Return True if the last two steps allocated and freed the same bytes in the same order."""
    ends = observer.boundaries
    if len(ends) < 3:
        return False
    previous, latest = ((_changes(observer, *pair)) for pair in ((ends[-3], ends[-2]), (ends[-2], ends[-1])))
    return previous == latest


def _changes(observer: Observer, first: int, last: int) -> list[int]:
    changes: dict[int, int] = {}
    for life in observer.lives:
        if first <= life.made < last:
            changes[life.made] = life.bytes
        if life.freed is not None and first <= life.freed < last:
            changes[life.freed] = -life.bytes
    return [changes[moment] for moment in sorted(changes)]


def _ends_before(life: StorageLife, moment: int) -> bool:
    return life.freed is not None and life.freed < moment


def _is_freed(allocation: FitAllocation, moment: int) -> bool:
    return allocation.freed is not None and allocation.freed <= moment


def _allocation(observer: Observer, life: StorageLife, first: int, last: int) -> FitAllocation:
    """Moments count from the start of the step."""
    is_earlier = life.made < first
    return FitAllocation(
        bytes=life.bytes,
        kind=life.kind or _kind(observer, life, first, last),
        phase="setup" if is_earlier else life.phase,
        made=-1 if is_earlier else life.made - first,
        freed=None if life.freed is None or life.freed >= last else life.freed - first,
        state=life.state,
        op=life.op,
        span=life.place.innermost,
        tensor=life.tensor,
        device=life.device,
    )


def _kind(observer: Observer, life: StorageLife, first: int, last: int) -> FitKind:
    """Of what no optimizer names: alive when a backward starts means saved, or an output."""
    if life.made < first:
        return "other"
    if life.phase != "forward":
        return "temporary"
    starts = [start for start in observer.backward_starts if life.made < start < last]
    if not starts or (life.freed is not None and life.freed < starts[0]):
        return "temporary"
    return "saved activation"


def _curve(allocations: tuple[FitAllocation, ...]) -> tuple[FitPoint, ...]:
    """One point per allocation in the step; what was alive before is its start."""
    live = sum(each.bytes for each in allocations if each.made < 0)
    changes: list[tuple[int, int, FitAllocation]] = []
    for each in allocations:
        if each.made >= 0:
            changes.append((each.made, each.bytes, each))
        if each.freed is not None:
            changes.append((each.freed, -each.bytes, each))
    points = []
    for moment, change, allocation in sorted(changes, key=lambda row: row[0]):
        live += change
        if change > 0:
            points.append(FitPoint(moment, live, allocation.phase, allocation.op, allocation.span))
    return tuple(points)


def _by_kind(alive: list[FitAllocation]) -> tuple[KindBytes, ...]:
    rows: dict[tuple[FitKind, str], KindBytes] = {}
    for each in alive:
        row = rows.get((each.kind, each.state), KindBytes(each.kind, 0, each.state))
        rows[each.kind, each.state] = replace(row, bytes=row.bytes + each.bytes, count=row.count + 1)
    return tuple(sorted(rows.values(), key=lambda row: -row.bytes))


def _by_line(alive: list[FitAllocation]) -> tuple[FitLine, ...]:
    rows: dict[object, FitLine] = {}
    for each in alive:
        line = (each.span.file, each.span.line) if each.span is not None else None
        row = rows.get((line, each.kind), FitLine(each.span, 0, each.kind))
        rows[line, each.kind] = replace(row, bytes=row.bytes + each.bytes, count=row.count + 1)
    return tuple(sorted(rows.values(), key=lambda row: -row.bytes))


def _phases(curve: tuple[FitPoint, ...]) -> tuple[PhasePeak, ...]:
    peaks: dict[str, PhasePeak] = {}
    for point in curve:
        if point.phase not in peaks or point.live_bytes > peaks[point.phase].peak_bytes:
            peaks[point.phase] = PhasePeak(point.phase, point.live_bytes, point.moment)
    return tuple(peaks.values())


def _peak_before(observer: Observer, moment: int) -> int:
    live = peak = 0
    for change in _changes(observer, 0, moment):
        live += change
        peak = max(peak, live)
    return peak
