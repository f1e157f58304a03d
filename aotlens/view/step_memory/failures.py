"""Held and predicted memory at a failure, and what would have avoided it, in words."""

from collections.abc import Iterator

from aotlens.model.memory_snapshot import FailureMatch, MatchedHolder
from aotlens.model.spans import location, relative_path
from aotlens.view.quantities import human_bytes, percent
from aotlens.view.step_memory.advice import together_words
from aotlens.view.step_memory.snapshots import holder_words

__all__ = ["avoided_lines", "match_lines"]

MOST_LINES = 15
MOST_KINDS = 3


def match_lines(match: FailureMatch, *, is_full: bool = False) -> Iterator[str]:
    """Yield held and predicted bytes of each line, then what the prediction does not explain."""
    script = relative_path(match.script)
    span = match.predicted_at.span
    where = f" at {location(span)}" if span is not None else ""
    yield f"Compared with the prediction for {script} {match.when}: {match.predicted_at.phase}{where}"
    yield f"  {human_bytes(match.held_bytes)} held, {human_bytes(match.predicted_bytes)} predicted"
    yield ""
    yield f"  {'held':>10}  {'predicted':>10}"
    shown = match.holders if is_full else match.holders[:MOST_LINES]
    for row in shown:
        sizes = f"{human_bytes(row.holder.size_bytes):>10}  {human_bytes(row.predicted_bytes):>10}"
        yield f"  {sizes}  {holder_words(row.holder)}{_kinds(row)}"
    if rest := match.holders[len(shown) :]:
        held, predicted = (
            sum(row.holder.size_bytes for row in rest),
            sum(row.predicted_bytes for row in rest),
        )
        yield f"  {human_bytes(held):>10}  {human_bytes(predicted):>10}  {len(rest)} more lines (--full)"
    for kind, size_bytes in match.not_held:
        yield f"  {'':>10}  {human_bytes(size_bytes):>10}  {kind}, held by no line of the snapshot"
    yield ""
    yield from _unexplained(match)


def _kinds(row: MatchedHolder) -> str:
    parts = [f"{human_bytes(size_bytes)} {kind}" for kind, size_bytes in row.kinds[:MOST_KINDS]]
    return f"  ({', '.join(parts)})" if parts else ""


def _unexplained(match: FailureMatch) -> Iterator[str]:
    rows = match.unexplained
    if not rows:
        yield "The prediction explains what was held, to 1% of it for each line"
        return
    share = percent(match.unexplained_bytes / max(1, match.held_bytes))
    yield f"Unexplained: {human_bytes(match.unexplained_bytes)}, {share} of what was held"
    for row in rows:
        extra = human_bytes(row.unexplained_bytes)
        why = "more than predicted" if row.predicted_bytes else "nothing is predicted for it"
        yield f"  {extra:>10}  {holder_words(row.holder)}: {why}"


def avoided_lines(match: FailureMatch) -> Iterator[str]:
    """Yield whether the predicted step fits the device, and the cheapest edits with which it would."""
    if match.failed_bytes is None:
        return
    step, capacity = human_bytes(match.step_bytes), human_bytes(match.capacity_bytes)
    beside = f" beside the unexplained {human_bytes(match.unexplained_bytes)}" if match.unexplained else ""
    if match.step_bytes <= match.target_bytes:
        yield f"The predicted step fits{beside}: it reserves {step}, and torch could reserve {capacity}"
        return
    plan = match.avoided_by
    if plan is None:
        return
    need = f"the step reserves {step}, {human_bytes(match.target_bytes)} of {capacity} are left{beside}"
    if not plan.titles:
        yield f"No tested edit would have avoided the failure: {need}"
    elif plan.is_reached:
        yield f"The failure would have been avoided by these edits: {need}"
    else:
        yield f"No tested edits would have avoided the failure: {need}; these come closest"
    yield from (f"  - {title}" for title in plan.titles)
    if plan.titles:
        yield f"  with them the step reserves {human_bytes(plan.peak_bytes)}: {together_words(plan)}"
    if match.unexplained and match.step_bytes <= match.capacity_bytes:
        yield "The step also fits if what is unexplained is released"
