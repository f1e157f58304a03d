"""Saved and recomputed values as text.

Invariant: the rows account for every byte; the last line of a shortened list counts the rest.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from rich.text import Text

from aotlens.model.report import Partition, RecomputedValue, Region, SavedValue
from aotlens.model.spans import lines_text, location, own_first, texts
from aotlens.render.text.layout import Page, Row, heading, paragraph, table
from aotlens.render.text.tradeoffs import tradeoff_lines
from aotlens.view.fold import Fold, fold, total_bytes
from aotlens.view.partition.reasons import (
    budget_text,
    certificate_text,
    overruled_text,
    reason_text,
    solver_choice_text,
)
from aotlens.view.partition.saved import (
    alive_anyway,
    owning,
    owning_recomputed,
    recomputed_total,
    saved_total,
    unknown_size,
    value_label,
)
from aotlens.view.quantities import counted, human_bytes, human_flops

Value = TypeVar("Value", SavedValue, RecomputedValue)

SAVED_ROWS = 16
RECOMPUTED_ROWS = 8
FEW_SAVED = 10
FEW_RECOMPUTED = 4
NAMES = 6
"""At most so many names of values that are alive anyway are listed; more are counted by owner."""

SAVED_STYLES = ("yellow", "", "", "cyan")

_DETAIL = " " * 6


def partition_lines(partition: Partition, page: Page) -> Iterator[Text]:
    """Yield saved values by size, identical layers folded; values alive anyway; recomputed values."""
    width = page.width
    note = f"{saved_total(partition)}, policy {partition.policy}"
    yield heading("Saved for backward", note + _default_note(partition))
    if partition.budget is not None:
        yield from paragraph(budget_text(partition.budget), width, "  ")
    if solver_choice := solver_choice_text(partition):  # of a graph from a log
        yield from paragraph(solver_choice, width, "  ", "dim")
    groups = saved_folds(owning(partition))
    large = _large(groups, partition.saved_bytes, page)[: page.most(SAVED_ROWS, FEW_SAVED)]
    shown = sorted(large, key=lambda group: own_first(group.first.span))
    rows = [_saved_row(group, page) for group in shown]
    yield from table(rows, width, frozenset({0}))
    yield from _cut(groups[len(large) :], page)
    yield from _free_lines(partition, width)
    if partition.dead_values is not None:
        yield from paragraph(partition.dead_values, width, "  ", "dim")
    if partition.recomputed and (page.is_full or owning_recomputed(partition)):
        yield Text()
        recomputed = _recomputed_lines if page.is_full else _recomputed_summary
        yield _recomputed_heading(partition)
        yield from recomputed(partition.recomputed, page)
    if partition.regions:
        yield Text()
        yield from _region_lines(partition.regions, page)
    yield from tradeoff_lines(partition, page)


def _free_lines(partition: Partition, width: int) -> Iterator[Text]:
    """Yield the values that are alive anyway, and those whose size is unknown before the call."""
    unknown = unknown_size(partition)
    if alive := alive_anyway(partition):
        yield from paragraph(f"alive anyway, so free to save: {_alive(alive)}", width, "  ", "dim")
    if unknown:
        names = ", ".join(map(value_label, unknown[:NAMES])) + (", …" if len(unknown) > NAMES else "")
        text = f"not counted, because its size depends on data: {names}"
        yield from paragraph(text, width, "  ", "dim")


def _default_note(partition: Partition) -> str:
    if partition.default_bytes is None or partition.policy == "default":
        return ""
    return f"; `default` would save {human_bytes(partition.default_bytes)}"


def _same_saved(value: SavedValue) -> Hashable:
    """Return the fields that identical layers share: all that a row shows, except nodes in its
    certificate."""
    price = value.certificate and (value.certificate.price_bytes, value.certificate.price_flops)
    return value.span, value.tensor.short(), value.owner, value.reason, value.overrode, price


def _saved_row(group: Fold[SavedValue], page: Page) -> Row:
    first, width = group.first, page.width
    cells = (human_bytes(total_bytes(group)), _each(group), first.tensor.short(), group.label)
    home = first.span.file if first.span else page.home
    uses = [use.span for use in first.used_by if use.span]
    read = f"; read by the backward of {lines_text(uses, home)}" if uses else ""
    read += "; donated" if first.donated else ""
    where = f"{location(first.span)}  " if first.span else ""
    why = reason_text(first)
    if not page.is_full:
        lines = tuple(paragraph(f"{where}{why}", width, _DETAIL, "dim"))
        return Row(cells, SAVED_STYLES, lines, clip=True)
    details = [*paragraph(f"{where}{why}{read}", width, _DETAIL, "dim")]
    if first.certificate:
        details += paragraph(certificate_text(first.certificate), width, _DETAIL, "dim")
    return Row(cells, SAVED_STYLES, (*details, *_overruled(first, width)), clip=True)


def _overruled(value: SavedValue | RecomputedValue, width: int) -> Iterator[Text]:
    if value.overrode:
        yield from paragraph(f"! {overruled_text(value)}", width, _DETAIL, "yellow")


def _recomputed_heading(partition: Partition) -> Text:
    flops = sum(value.flops for value in partition.recomputed)
    note = f"{human_flops(flops)} instead of {recomputed_total(partition)}"
    return heading("Recomputed in backward", note)


def _recomputed_summary(values: tuple[RecomputedValue, ...], page: Page) -> Iterator[Text]:
    """Yield, for a short page, the largest recomputed values of all reasons."""
    folds = _by_size([value for value in values if value.bytes], _same_recomputed)
    large = _large(folds, sum(map(total_bytes, folds)), page)[: page.few(FEW_RECOMPUTED)]
    yield from table([_recomputed_row(entry, page.width) for entry in large], page.width, frozenset({0, 2}))
    yield from _cut(folds[len(large) :], page)


def _recomputed_lines(values: tuple[RecomputedValue, ...], page: Page) -> Iterator[Text]:
    """Grouped by reason; values without memory of their own are only counted."""
    width = page.width
    for reason in dict.fromkeys(reason_text(value) for value in values):
        group = [value for value in values if reason_text(value) == reason]
        marked = [value for value in group if value.bytes or value.overrode]
        folds = _by_size(marked, _same_recomputed)
        shown = folds[:RECOMPUTED_ROWS]
        yield from paragraph(f"{counted(len(group), 'value')}: {reason}", width, "  ", "dim")
        rows = [_recomputed_row(entry, width) for entry in shown]
        yield from table(rows, width, frozenset({0, 2}))
        yield from _cut(folds[RECOMPUTED_ROWS:], page)


def _same_recomputed(value: RecomputedValue) -> Hashable:
    return value.span, value.flops, value.overrode


def _region_lines(regions: tuple[Region, ...], page: Page) -> Iterator[Text]:
    """Yield the marked regions: the line of each call, and its saved values."""
    yield heading("Marked regions", f"{counted(len(regions), 'region')}, each traced and partitioned once")
    for region in regions:
        saved = [value for value in region.saved if value.bytes]
        each = f"each saves {human_bytes(sum(value.bytes for value in saved))}"
        each += f" ({', '.join(value.node for value in saved)})" if saved else ""
        again = f", recomputes {counted(len(region.recomputed), 'value')}" if region.recomputed else ""
        where = lines_text((site.span for site in region.sites), page.home)
        line = f"{region.name}: {region.reason} ({where}); {each}{again}"
        yield from paragraph(line, page.width, "  ")


def _recomputed_row(entry: Fold[RecomputedValue], width: int) -> Row:
    work = human_flops(sum(value.flops for value in entry.items))
    cells = (human_bytes(total_bytes(entry)), _each(entry), work, entry.label)
    overruled = tuple(_overruled(entry.first, width))
    return Row(cells, ("yellow", "", "", "cyan"), overruled, clip=True)


def saved_folds(values: Sequence[SavedValue]) -> list[Fold[SavedValue]]:
    """Return the rows of saved values: identical layers as one, the largest total first."""
    return _by_size(values, _same_saved)


def _by_size(values: Sequence[Value], same: Callable[[Value], Hashable]) -> list[Fold[Value]]:
    """Folds, the largest total first."""
    text_at = texts()
    folds = fold(values, lambda value: value_label(value, text_at), lambda value: (value.bytes, same(value)))
    return sorted(folds, key=lambda group: -total_bytes(group))


def _each(group: Fold[Value]) -> str:
    """Return `×12, 3.1 MiB each`; empty for a single value."""
    return f"{group.times}, {human_bytes(group.first.bytes)} each" if group.times else ""


def _alive(values: Sequence[SavedValue]) -> str:
    """Return `hidden (output), down.weight (parameter)`, or how many of each owner when there are many."""
    folds = fold(values, lambda value: value.name or value.node, _owner_text)
    if len(folds) <= NAMES:
        return ", ".join(
            f"{group.label} ({_owner_text(group.first)}{f' {group.times}' if group.times else ''})"
            for group in folds
        )
    keepers = Counter(map(_owner_text, values))
    return ", ".join(counted(count, keeper) for keeper, count in keepers.items())


def _owner_text(value: SavedValue) -> str:
    """Return the value's owner; a value of the graph without bytes is in the memory of another one."""
    return "shared view" if value.owner == "new" else value.owner


def _large(folds: list[Fold[Value]], total: int, page: Page) -> list[Fold[Value]]:
    """Return the folds that are worth a row."""
    return [group for group in folds if total_bytes(group) >= page.least(total)]


def _cut(rest: list[Fold[Value]], page: Page) -> Iterator[Text]:
    if rest:
        values, total = sum(len(group.items) for group in rest), sum(map(total_bytes, rest))
        text = f"and {counted(values, 'smaller value')}, {human_bytes(total)} together"
        yield from paragraph(f"{text} ({page.rest})", page.width, "  ", "dim")
