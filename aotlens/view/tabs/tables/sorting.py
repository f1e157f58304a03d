"""The order of a table's rows by one of its columns.

Invariant: rows sort by their value, never by its text: sizes by bytes, numbers by amount, names as a reader
counts (`mm_2` before `mm_10`). Empty cells come last in either direction.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aotlens.view.tabs.tables.rows import Cell, Cells, Column, part

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
_UNKNOWN = "unknown size"

SortKey = tuple[tuple[int, float, str], ...]


@dataclass(frozen=True, slots=True)
class Sort:
    """A choice of order."""

    title: str
    """The column's title: the next report may have other columns."""
    descending: bool

    def column_in(self, columns: Sequence[Column]) -> int | None:
        """Return the position of the column, if the table has it."""
        return next((index for index, column in enumerate(columns) if column.title == self.title), None)


def sort_key(cell: Cell) -> SortKey | None:
    """Return what a cell sorts by; None if it is empty."""
    shown = part(cell)
    if shown.value is not None:
        return ((0, shown.value, ""),)
    if not shown.text or shown.text == _UNKNOWN:
        return None
    pieces = _NUMBER.split(shown.text.casefold())
    return tuple(
        (0, float(piece), "") if index % 2 else (1, 0.0, piece) for index, piece in enumerate(pieces) if piece
    )


def sorted_positions(
    positions: Sequence[int], cells_of: Callable[[int], Cells], column: int, *, descending: bool
) -> tuple[int, ...]:
    """Return the positions of a listing sorted by a column; equal rows stay in their order."""
    keys = {position: sort_key(cells_of(position)[column]) for position in positions}
    with_key = [(key, position) for position in positions if (key := keys[position]) is not None]
    # `reverse` of `sorted` keeps equal items in their order.
    ordered = sorted(with_key, key=lambda item: item[0], reverse=descending)
    return (
        *(position for _, position in ordered),
        *(position for position in positions if keys[position] is None),
    )


def next_sort(current: Sort | None, columns: Sequence[Column]) -> Sort | None:
    """Return the order after this one: the measures first, then the other columns, then the table's own."""
    named = sorted(
        (column for column in columns if column.title), key=lambda column: not column.largest_first
    )
    titles = [column.title for column in named]
    after = titles.index(current.title) + 1 if current is not None and current.title in titles else 0
    return Sort(titles[after], named[after].largest_first) if after < len(named) else None


def clicked_sort(current: Sort | None, column: Column) -> Sort | None:
    """Return the order after a click on a column's title: sorted, then reversed, then the table's own."""
    if current is None or current.title != column.title:
        return Sort(column.title, column.largest_first)
    return Sort(column.title, not current.descending) if current.descending == column.largest_first else None
