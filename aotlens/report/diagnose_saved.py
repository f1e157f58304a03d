"""Findings about what is kept for the backward: the family AL3.

Invariant: one finding an expression, all layers of a loop together; what the partition keeps for a good
reason and in its smallest form has none.
"""

from collections.abc import Callable, Iterator

from aotlens.report.checkpoint_call import Advice, best_call
from aotlens.report.checkpoint_edit import checkpointed
from aotlens.report.findings import Check, Limits, peak_cost
from aotlens.report.places import text_of
from aotlens.report.records import (
    Diagnostic,
    Partition,
    RecomputedValue,
    Related,
    SavedValue,
    Severity,
    Span,
    Target,
)
from aotlens.report.summary import human_bytes

Size = Callable[[SavedValue], int]


def large_saved_values(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL301: the largest expressions that are kept for the backward, all layers of a loop together."""
    partition = target.partition
    if partition is None or not partition.saved_bytes:
        return
    least = max(limits.saved_bytes, limits.saved_share * partition.saved_bytes)
    groups = _by_span(partition.saved, _bytes, least)[: limits.saved_findings]
    if not groups:
        return
    advice = best_call(target)
    for group in groups:
        yield _large_saved(target, partition, group, advice)


def _bytes(value: SavedValue) -> int:
    return value.bytes


def _by_span(values: tuple[SavedValue, ...], size: Size, least: float) -> list[list[SavedValue]]:
    """The values of each expression that together have at least that size, the largest first."""
    groups: dict[Span | None, list[SavedValue]] = {}
    for value in values:
        groups.setdefault(value.span, []).append(value)
    large = [group for group in groups.values() if _total(group, size) >= least]
    return sorted(large, key=lambda group: -_total(group, size))


def _total(group: list[SavedValue], size: Size) -> int:
    return sum(size(value) for value in group)


def _large_saved(
    target: Target, partition: Partition, group: list[SavedValue], advice: Advice | None
) -> Diagnostic:
    first, total = group[0], _total(group, _bytes)
    share = f"{100 * total / partition.saved_bytes:.0f} % of what is saved"
    uses = dict.fromkeys(use.span for value in group for use in value.used_by if use.span)
    related = tuple(
        Related(span, "its backward reads the value") for span in list(uses)[:3] if span != first.span
    )
    fix = None
    if advice is not None and any(value.node in advice.spared for value in group):
        fix = checkpointed(advice)
        what = f"checkpointing this call would save {human_bytes(advice.saved_bytes)} in all"
        related = (*related, Related(advice.span, f"{what} instead of {human_bytes(partition.saved_bytes)}"))
    message = f"`{_name(first)}` keeps {human_bytes(total)}{_each(group)} for the backward, {share}"
    return Diagnostic(
        "AL301",
        "information",
        f"{message}: {first.reason}",
        first.span or target.span,
        related,
        (fix,) if fix is not None else (),
        peak_cost(target, total),
    )


def _name(value: SavedValue | RecomputedValue) -> str:
    """The user's word for a value: the variable, the expression, or the node."""
    named = value.name if isinstance(value, SavedValue) else None
    return named or (text_of(value.span) if value.span else "") or value.node


def _each(group: list[SavedValue]) -> str:
    """` (12 × 4.0 MiB)`, where they are several of one size."""
    alike = len(group) > 1 and len({value.bytes for value in group}) == 1
    return f" ({len(group)} × {human_bytes(group[0].bytes)})" if alike else ""


SPARES: dict[str, tuple[str, Severity]] = {
    "copy": ("AL302", "information"),
    "precision": ("AL302", "information"),
    "mask": ("AL303", "information"),
    "dead": ("AL304", "warning"),
}
"""Code and severity by the kind of what can be spared."""


def spared_bytes(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL302, AL303 and AL304: bytes that carry nothing."""
    partition = target.partition
    if partition is None:
        return
    least = max(limits.spare_bytes, limits.spare_share * partition.saved_bytes)
    for kind, (code, severity) in SPARES.items():
        values = tuple(value for value in partition.saved if value.spare and value.spare.kind == kind)
        for group in _by_span(values, _spare, least):
            yield _spared(target, group, code, severity)


def _spare(value: SavedValue) -> int:
    return value.spare.bytes if value.spare is not None else 0


def _spared(target: Target, group: list[SavedValue], code: str, severity: Severity) -> Diagnostic:
    first = group[0]
    assert first.spare is not None  # as of every value of the group
    total, spare = human_bytes(_total(group, _bytes)), human_bytes(_total(group, _spare))
    message = (
        f"`{_name(first)}` is kept for the backward as {first.tensor.short()}, {total}{_each(group)}:"
        f" {first.spare.reason}; {spare} could be spared"
    )
    cause = first.spare.span
    related = (Related(cause, "it becomes so here"),) if cause is not None and cause != first.span else ()
    cost = peak_cost(target, _total(group, _spare))
    return Diagnostic(code, severity, message, first.span or target.span, related, (), cost)


def overruled_checkpoints(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL305: what a checkpoint asked for, and was not done."""
    partition = target.partition
    if partition is None:
        return
    least = max(limits.spare_bytes, limits.spare_share * partition.saved_bytes)
    saved = tuple(value for value in partition.saved if value.overrode)
    for group in _by_span(saved, _bytes, least):
        first = group[0]
        message = (
            f"`{_name(first)}` is kept for the backward, {human_bytes(_total(group, _bytes))}{_each(group)},"
            f" against {first.overrode}: {first.reason}"
        )
        yield Diagnostic("AL305", "information", message, first.span or target.span)
    told: set[Span | None] = set()
    for value in partition.recomputed:
        if value.overrode and value.bytes >= least and value.span not in told:
            told.add(value.span)
            message = f"`{_name(value)}` is computed again against {value.overrode}: {value.reason}"
            yield Diagnostic("AL305", "information", message, value.span or target.span)


def harmful_budget(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL306: less is saved than with a larger budget or with none, and yet the peak is higher."""
    partition, memory = target.partition, target.memory
    if partition is None or partition.budget is None or partition.unbudgeted is None or memory is None:
        return
    others = (partition.unbudgeted, *partition.larger_budgets)
    best = min(others, key=lambda totals: totals.peak_bytes)
    if memory.peak_bytes <= best.peak_bytes:
        return
    with_more = "without it" if best is partition.unbudgeted else "with a larger budget"
    message = (
        f"the memory budget of {human_bytes(partition.budget.asked_bytes)} raises the predicted peak to"
        f" {human_bytes(memory.peak_bytes)}, from {human_bytes(best.peak_bytes)} {with_more}: it saves"
        f" {human_bytes(partition.saved_bytes)} instead of {human_bytes(best.saved_bytes)}, and what the"
        " backward computes again needs more at once"
    )
    yield Diagnostic("AL306", "warning", message, target.span)


SAVED_CHECKS: tuple[Check, ...] = (
    large_saved_values,
    spared_bytes,
    overruled_checkpoints,
    harmful_budget,
)
