"""The changes of a new trace, in one line each, for `--watch`."""

from collections import Counter
from collections.abc import Iterator

from aotlens.compare.saved import SavedChange
from aotlens.compare.saved import saved_changes as saved_difference
from aotlens.model.report import Target
from aotlens.model.spans import line_text, texts
from aotlens.view.fold import Fold, fold
from aotlens.view.partition.saved import layer_value_name
from aotlens.view.quantities import call_count, counted, signed, signed_bytes
from aotlens.view.tabs.tables.rows import Line, Link, Part


def changes(old: Target, new: Target) -> tuple[Line, ...]:
    """Return saved bytes, nodes and diagnostics that differ; empty when both traces are equal."""
    return (*saved_changes(old, new), *node_changes(old, new), *diagnostic_changes(old, new))


def headline(old: Target, new: Target) -> tuple[Part, ...]:
    """Return `saved +3.1 MiB at line 41`: the total, and the line of the value with the largest part in
    it."""
    difference = saved_bytes(new) - saved_bytes(old)
    if difference:
        heaviest = max(saved_difference(old, new), key=lambda row: abs(row.change_bytes), default=None)
        span = heaviest.value.span if heaviest is not None and not heaviest.is_gone else None
        where = f" at {line_text(span, new.file)}" if span is not None else ""
        return Part("saved ", "dim"), Part(signed_bytes(difference), tone(difference)), Part(where, "dim")
    number = sum(1 for _ in changes(old, new))
    return (Part(counted(number, "change") if number else "nothing changed", "dim"),)


def saved_changes(old: Target, new: Target) -> Iterator[Line]:
    """Yield the total, then each value, identical layers as one."""
    if saved_bytes(new) != saved_bytes(old):
        yield Line((Part("  "), *headline(old, new)))
    text_at = texts()

    def name(row: SavedChange) -> str:
        return row.value.name or row.value.node if row.is_gone else layer_value_name(row.value, text_at)

    def same(row: SavedChange) -> tuple[object, ...]:
        return row.change_bytes, row.is_gone, row.value.span

    yield from (value_change(group, new) for group in fold(saved_difference(old, new), name, same))


def value_change(group: Fold[SavedChange], target: Target) -> Line:
    """Return `+3.1 MiB blocks.0–3: att ×4 at line 41`; a value that is no longer saved has no line."""
    span, gone = group.first.value.span, group.first.is_gone
    difference = sum(row.change_bytes for row in group.items)
    parts = (
        Part(f"  {signed_bytes(difference):>11} ", tone(difference)),
        Part(f"{group.label} {group.times}".strip(), "name"),
        Part("  no longer saved" if gone else f"  at {line_text(span, target.file)}", "place"),
    )
    return Line(parts, Link((span,) if span is not None and not gone else ()))


def tone(difference: int) -> str:
    return "warning" if difference > 0 else "ok"


def saved_bytes(target: Target) -> int:
    return target.partition.saved_bytes if target.partition else 0


def node_changes(old: Target, new: Target) -> Iterator[Line]:
    for stage in new.stages:
        earlier = old.stage(stage.name)
        difference = call_count(stage) - call_count(earlier) if earlier else 0
        if difference and stage.name in ("forward", "backward", "inference"):
            grown = signed(difference, lambda count: counted(count, "node"))
            yield Line((Part(f"  {stage.name} ", "dim"), Part(grown, tone(difference))))


def diagnostic_changes(old: Target, new: Target) -> Iterator[Line]:
    before = Counter((item.code, item.message) for item in old.diagnostics)
    after = Counter((item.code, item.message) for item in new.diagnostics)
    for item in new.diagnostics:
        if (item.code, item.message) not in before:
            link = Link((item.span,) if item.span else ())
            yield Line(
                (Part("  new ", "dim"), Part(f"{item.code} ", item.severity), Part(item.message)), link
            )
    for code, message in before:
        if (code, message) not in after:
            yield Line((Part("  gone ", "ok"), Part(f"{code} {message}", "dim")))
