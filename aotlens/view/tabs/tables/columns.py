"""The widths of a table's columns: as wide as their content, and where that does not fit, whole cells first.

Invariant: only a sample of the rows is measured, so the cost does not depend on the length of the table.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from aotlens.view.shorten import shortened
from aotlens.view.tabs.tables.rows import Cells, Column, Listing, part

GAP = 2
SAMPLE = 64
"""Rows measured at each end of the table."""
IDENTIFIES = 3
"""How much more a whole cell counts in a column that is never dropped: it tells the rows apart."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What a sample of the rows needs."""

    natural: tuple[int, ...]
    """The widest cell of each column, at most the column's limit; 0 for a column without content."""
    lengths: tuple[tuple[int, ...], ...] = ()
    """The lengths of each column's cells, sorted."""


def measures(listing: Listing, sorted_by: int | None = None) -> Measures:
    """Measure a sample of the rows; the title of the sorted column has a mark beside it."""
    columns = listing.columns
    titles = [cell_len(column.title) + (index == sorted_by) for index, column in enumerate(columns)]
    lengths: list[list[int]] = [[] for _ in columns]
    for cells in _sample(listing):
        for index, cell in enumerate(cells):
            if length := cell_len(part(cell).text):
                lengths[index].append(length)
    natural = []
    for column, title, own in zip(columns, titles, lengths, strict=True):
        shown = own or ([title] if not column.drop else [])
        widest = max((title, *shown)) if shown else 0
        natural.append(max(_natural(column, widest), title if shown and column.title else 0))
    return Measures(tuple(natural), tuple(tuple(sorted(own)) for own in lengths))


def _sample(listing: Listing) -> Iterator[Cells]:
    total = len(listing.rows)
    for index in (*range(min(SAMPLE, total)), *range(max(SAMPLE, total - SAMPLE), total)):
        yield listing.rows.cells(index)
    if listing.group_cells is not None:
        for group in listing.groups[:SAMPLE]:
            if len(group.positions) > 1:
                yield listing.group_cells(group)


def _natural(column: Column, width: int) -> int:
    """Return the natural width; a column of bars has no title and one width, since a longer bar may be
    outside the sample."""
    if width and not column.title and column.narrowest == column.widest:
        return column.widest
    return width if column.grows else min(width, column.widest)


def fitted_widths(columns: Sequence[Column], measured: Measures, width: int) -> tuple[int, ...]:
    """Return widths that fit: columns shrink, then columns are dropped; 0 hides a column.

    The room beyond the least widths goes where it completes most cells; growing columns share what is left.
    Where several columns grow, such as the two sides of a comparison, they get nothing but that.
    """
    natural = measured.natural
    least = [min(wide, column.narrowest) for column, wide in zip(columns, natural, strict=True)]
    visible = [position for position, wide in enumerate(natural) if wide]
    while total(least, visible) > width and any(columns[position].drop for position in visible):
        visible.remove(max(visible, key=lambda position: columns[position].drop))
    widths = [least[position] if position in visible else 0 for position in range(len(columns))]
    spare = width - total(widths, visible)
    while (step := _best_step(columns, measured, widths, spare)) is not None:
        position, cells = step
        widths[position] += cells
        spare -= cells
    for position in level([position for position in visible if columns[position].grows], widths, spare):
        widths[position] += 1
    return tuple(widths)


def _best_step(
    columns: Sequence[Column], measured: Measures, widths: Sequence[int], spare: int
) -> tuple[int, int] | None:
    """Return the column that gains most from being wider, and by how much; None if nothing fits."""
    best: tuple[float, int, int] | None = None
    are_sides = sum(column.grows for column in columns) > 1
    for position, (column, wide) in enumerate(zip(columns, widths, strict=True)):
        if not 0 < wide < measured.natural[position] or (column.grows and are_sides):
            continue
        lengths = measured.lengths[position] if measured.lengths else ()
        whole = bisect_right(lengths, wide)
        ends = {min(length, measured.natural[position]) for length in lengths[whole:]}
        for end in ends or {measured.natural[position]}:
            if 0 < end - wide <= spare:
                gain = bisect_right(lengths, end) - whole or 1
                value = gain * (1 if column.drop else IDENTIFIES) / (end - wide)
                best = max(best or (0.0, 0, 0), (value, -position, end - wide))
    return (-best[1], best[2]) if best is not None else None


def level(growing: Sequence[int], widths: Sequence[int], spare: int) -> list[int]:
    """Return the column that gets each of the spare cells: always the narrowest of those that grow."""
    current = {position: widths[position] for position in growing}
    order: list[int] = []
    for _ in range(spare if growing else 0):
        narrowest = min(growing, key=lambda position: current[position])
        current[narrowest] += 1
        order.append(narrowest)
    return order


def total(widths: Sequence[int], visible: Sequence[int]) -> int:
    return sum(widths[position] for position in visible) + GAP * max(0, len(visible) - 1)


def sized(text: str, width: int, align: str = "left") -> str:
    """Return the text in exactly `width` cells; a name that is too long keeps what distinguishes it."""
    length = cell_len(text)
    if length > width:
        single = length == len(text) and text.isprintable()
        text = shortened(text, width) if single else set_cell_size(text, width - 1) + "…"
        length = cell_len(text)
    return " " * (width - length) + text if align == "right" else text + " " * (width - length)
