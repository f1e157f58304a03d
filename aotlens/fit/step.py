"""Build the report of one step from the observer's records.

Invariant: the curve, the composition at the peak, and the allocations describe the same storages: the bytes
of the kinds add up to the peak, and so do those of the lines.
"""

from dataclasses import replace

from aotlens.fit.floor import floor_of
from aotlens.fit.observer import Observer, StorageLife
from aotlens.model.fit import (
    Fit,
    FitAllocation,
    FitKind,
    FitLine,
    FitMoment,
    FitPoint,
    PhasePeak,
    kinds_of,
)
from aotlens.model.spans import text_of

__all__ = ["fit_of", "moments_of_step", "period_of"]


MOST_BOUNDARIES = 4
"""The most calls of `step` in one step of a script: a GAN has two."""


def fit_of(observer: Observer, is_fake: bool = True, assumptions: tuple[str, ...] = ()) -> Fit:
    """Report the last complete step or, without an optimizer's step, the whole run."""
    observer.other_phases.settle()
    ends, period = observer.boundaries, period_of(observer)
    length = period or 1
    first, last = moments_of_step(observer, length)
    device = "cuda" if any(life.device == "cuda" for life in observer.lives) else "cpu"
    lives = [
        life
        for life in observer.lives
        if life.device == device and life.created_at < last and not _ends_before(life, first)
    ]
    allocations = tuple(_allocation(life, _kind(observer, life, first, last), first, last) for life in lives)
    curve = _curve(allocations)
    if not curve:
        return Fit(0, FitMoment("setup"), device=device, is_fake=is_fake, assumptions=assumptions)
    top = max(curve, key=lambda point: point.live_bytes)
    alive = [each for each in allocations if each.is_alive_at(top.moment)]
    work = observer.work.of_step(length)
    calls = [
        replace(call, moment=call.moment - first, at=replace(call.at, moment=call.moment - first))
        for call in observer.undivided_calls
        if first <= call.moment < last
    ]
    floor, floor_at = floor_of(allocations, calls, dict(zip(map(id, lives), allocations, strict=True)))
    return Fit(
        step_peak_bytes=top.live_bytes,
        at=top.as_moment(),
        by_kind=kinds_of(alive),
        by_line=_by_line(alive),
        curve=curve,
        phases=_phases(curve),
        allocations=allocations,
        device=device,
        is_fake=is_fake,
        step=len(ends) // length,
        calls_per_step=length,
        is_periodic=period is not None,
        setup_peak_bytes=_peak_before(observer, first, device),
        run_phases=_other_phases_of_run(observer, device),
        assumptions=assumptions,
        step_flops=work.flops,
        step_operators=work.operators,
        floor=floor,
        floor_at=floor_at,
    )


def _other_phases_of_run(observer: Observer, device: str) -> tuple[PhasePeak, ...]:
    """Return the peaks of evaluation and of saving checkpoints, anywhere in the run."""
    lives = [life for life in observer.lives if life.device == device]
    # A curve has no kinds, and each kind would be looked for among all steps of the run.
    curve = _curve(tuple(_allocation(life, "other", 0, observer.moments) for life in lives))
    return tuple(peak for peak in _phases(curve) if peak.phase in ("evaluation", "checkpoint saving"))


def moments_of_step(observer: Observer, length: int) -> tuple[int, int]:
    """Return the moments between which the step of that many calls of an optimizer's `step` runs."""
    ends = observer.boundaries
    return (ends[-1 - length], ends[-1]) if len(ends) > 1 else (0, ends[0] if ends else observer.moments)


def period_of(observer: Observer) -> int | None:
    """Return the fewest calls of `step` after which allocations and frees repeat in size and order."""
    ends = observer.boundaries
    for length in range(1, MOST_BOUNDARIES + 1):
        if len(ends) > 2 * length:
            before, between, last = (ends[-1 - count * length] for count in (2, 1, 0))
            if _changes(observer, before, between) == _changes(observer, between, last):
                return length
    return None


def _changes(observer: Observer, first: int, last: int, device: str = "") -> list[int]:
    changes: dict[int, int] = {}
    for life in observer.lives:
        if device and life.device != device:
            continue
        if first <= life.created_at < last:
            changes[life.created_at] = life.bytes
        if life.freed_at is not None and first <= life.freed_at < last:
            changes[life.freed_at] = -life.bytes
    return [changes[moment] for moment in sorted(changes)]


def _ends_before(life: StorageLife, moment: int) -> bool:
    return life.freed_at is not None and life.freed_at < moment


def _allocation(life: StorageLife, kind: FitKind, first: int, last: int) -> FitAllocation:
    """Return the allocation, with moments counted from the start of the step."""
    is_earlier = life.created_at < first
    return FitAllocation(
        bytes=life.bytes,
        kind=kind,
        phase="setup" if is_earlier else life.phase,
        made=-1 if is_earlier else life.created_at - first,
        freed=None if life.freed_at is None or life.freed_at >= last else life.freed_at - first,
        state=life.state,
        op=life.op,
        span=life.frames.innermost,
        tensor=life.tensor,
        device=life.device,
    )


def _kind(observer: Observer, life: StorageLife, first: int, last: int) -> FitKind:
    return life.kind or _communication(life, _unnamed_kind(observer, life, first, last), first)


def _unnamed_kind(observer: Observer, life: StorageLife, first: int, last: int) -> FitKind:
    """Return the kind of a storage that neither an optimizer nor a module names."""
    if life.is_data and life.is_read_by_model:
        return "input"
    if life.created_at < first:
        return "output" if life.phase == "forward" else "other"
    if life.phase != "forward":
        return "temporary"
    starts = [start for start in observer.backward_starts if life.created_at < start < last]
    if not starts or (life.freed_at is not None and life.freed_at < starts[0]):
        return "temporary"
    updates = [start for start in observer.optimizer_starts if life.created_at < start <= last]
    is_alive_after_backward = updates and (life.freed_at is None or life.freed_at >= updates[0])
    return "output" if is_alive_after_backward else "saved activation"


def _communication(life: StorageLife, kind: FitKind, first: int) -> FitKind:
    """Return `communication` for a collective's buffer that is used for nothing else."""
    is_buffer = kind in ("temporary", "other") or (kind == "output" and life.created_at < first)
    return "communication" if life.is_communicated and is_buffer else kind


def _curve(allocations: tuple[FitAllocation, ...]) -> tuple[FitPoint, ...]:
    """Return one point per allocation in the step, starting with what was alive before."""
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


def _by_line(alive: list[FitAllocation]) -> tuple[FitLine, ...]:
    rows: dict[object, FitLine] = {}
    for each in alive:
        line = (each.span.file, each.span.line) if each.span is not None else None
        row = rows.get((line, each.kind), _line(each))
        rows[line, each.kind] = replace(row, bytes=row.bytes + each.bytes, count=row.count + 1)
    return tuple(sorted(rows.values(), key=lambda row: -row.bytes))


def _line(allocation: FitAllocation) -> FitLine:
    text = text_of(allocation.span) if allocation.span is not None else ""
    return FitLine(allocation.span, 0, allocation.kind, text=text)


def _phases(curve: tuple[FitPoint, ...]) -> tuple[PhasePeak, ...]:
    peaks: dict[str, PhasePeak] = {}
    for point in curve:
        if point.phase not in peaks or point.live_bytes > peaks[point.phase].peak_bytes:
            peaks[point.phase] = PhasePeak(point.phase, point.live_bytes, point.moment)
    return tuple(peaks.values())


def _peak_before(observer: Observer, moment: int, device: str) -> int:
    live = peak = 0
    for change in _changes(observer, 0, moment, device):
        live += change
        peak = max(peak, live)
    return peak
