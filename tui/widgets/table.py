"""A table of any length: columns fitted to the width, rows made when shown, a filter, an order."""

from collections.abc import Sequence
from itertools import chain
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import BindingType

from aotlens.view.tabs.source.spans import LineIndex
from aotlens.view.tabs.tables.columns import GAP, Measures, fitted_widths, measures, sized
from aotlens.view.tabs.tables.rows import Cells, Column, Group, LazyRows, Link, Listing, Part, matching, part
from aotlens.view.tabs.tables.sorting import Sort, clicked_sort, next_sort, sorted_positions
from tui.keys import bind
from tui.widgets.row_list import MARKER_WIDTH, RowList

MARKS = {True: "▼", False: "▲"}
"""Beside the title of the column that the rows are sorted by: largest first, smallest first."""
SELECTED, PARTLY = "✓", "~"
"""The marks of a selected row, and of a fold of which some rows are selected."""

NOTHING = Listing((Column(""),), LazyRows((), str, lambda _: (), str, lambda _: Link()), "")


class VirtualTable(RowList):
    """Shows a `Listing`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("table.sort", "o", "sort", ("Sort", "Sort the table by its next column.")),
        bind("table.reverse", "O", "reverse", ("", "Reverse the order of the table.")),
    ]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.listing = NOTHING
        self.query_text = ""
        self.shown: tuple[int, ...] | range = range(0)
        """Positions in the listing of the rows that pass the filter; of a group the first."""
        self.selected: frozenset[int] = frozenset()
        """Positions in the listing of the records that the user has selected."""
        self.unfolded = False
        """True if identical layers are not folded."""
        self._groups: dict[int, Group] = {}
        """By the position of its first row; empty while unfolded and while a filter searches every row."""
        self._row_of_position: dict[int, int] | None = None
        """For each position in the listing the row that shows it; built when it is first needed."""
        self.sort: Sort | None = None
        """The user's order; None for the table's own."""
        self._measures = Measures(())
        self._fitted: tuple[int, tuple[int, ...]] = (-1, ())
        self._lines: LineIndex | None = None

    # Content.

    def show(self, listing: Listing) -> None:
        """Replace the rows; the cursor stays on the row of the same key, else goes to the first."""
        key = self.key
        self.listing = listing
        self.query_text = ""
        self._show_all()
        self._lines = None
        self._measure_columns()
        self.rows_changed(0)
        if key:
            self.select_or_fold(key)

    @property
    def folds(self) -> bool:
        """Return True if the listing has identical layers."""
        return bool(self.listing.groups)

    def unfold(self, unfolded: bool) -> None:
        """Show identical layers apart, or as one row each; the cursor stays."""
        index = self.record_index
        self.unfolded = unfolded
        self._show_all()
        self.rows_changed(0)
        if index is not None:
            self.select_index_or_fold(index)

    def _row_of(self, index: int) -> int | None:
        """Return the row that shows a record, alone or in a fold; None where a filter hides it."""
        if isinstance(self.shown, range):
            return index if index in self.shown else None
        if self._row_of_position is None:
            self._row_of_position = {position: row for row, position in enumerate(self.shown)}
            for first, group in self._groups.items():
                self._row_of_position |= dict.fromkeys(group.positions, self._row_of_position[first])
        return self._row_of_position.get(index)

    def _show_matching(self) -> None:
        """Show the rows that pass the filter, unfolded; without one, all."""
        if self.query_text.strip():
            self._groups = {}
            self._show_rows(matching(self.listing.rows, self.query_text))
        else:
            self._show_all()

    def _show_all(self) -> None:
        """No filter: every row, or the first of each group."""
        groups = () if self.unfolded else self.listing.groups
        self._groups = {group.positions[0]: group for group in groups}
        self._show_rows(tuple(self._groups) if groups else range(len(self.listing.rows)))

    def _show_rows(self, positions: tuple[int, ...] | range) -> None:
        """Show these records in the chosen order."""
        column = self._sorted_column
        if self.sort is not None and column is not None:
            positions = sorted_positions(positions, self._cells, column, descending=self.sort.descending)
        self.shown = positions
        self._row_of_position = None

    def filter(self, query: str) -> None:
        """Keep the rows that match; an empty query keeps all."""
        index = self.record_index
        self.query_text = query
        self._show_matching()
        self.rows_changed(0)
        if index is None or not self.select_index_or_fold(index):
            self.place_cursor(0, notify=True)

    @property
    def key(self) -> str:
        """Return the key of the row under the cursor; empty when there is none."""
        return self.listing.rows.key(self.shown[self.cursor]) if self.row_count else ""

    @property
    def record_index(self) -> int | None:
        """Return the position in the listing of the row under the cursor."""
        return self.shown[self.cursor] if self.row_count else None

    @property
    def record_indices(self) -> tuple[int, ...]:
        """Return the positions in the listing of all records that the row under the cursor shows."""
        index = self.record_index
        return () if index is None else self._positions(index)

    def _positions(self, index: int) -> tuple[int, ...]:
        """Return the positions of the records that the row of a record shows."""
        return self._groups[index].positions if index in self._groups else (index,)

    def select(self, key: str, *, notify: bool = False) -> bool:
        """Put the cursor on the row of that key; return False when it is not among those shown."""
        index = self._index_of(key)
        if index is not None:
            self.select_index(index, notify=notify)
        return index is not None

    def select_or_fold(self, key: str) -> bool:
        """Put the cursor on the row of that key, or on the fold that hides it; return False where none is
        shown."""
        index = self._index_of(key)
        return index is not None and self.select_index_or_fold(index)

    def select_index_or_fold(self, index: int) -> bool:
        """Put the cursor on the record at that position of the listing, or on the fold that hides it."""
        row = self._row_of(index)
        if row is not None:
            self.place_cursor(row)
        return row is not None

    def shows(self, key: str) -> bool:
        """Return True if the row under the cursor is that of the key, or a fold that hides it."""
        return any(self.listing.rows.key(index) == key for index in self.record_indices)

    def _index_of(self, key: str) -> int | None:
        """Return the position in the listing of the row of that key, where it is shown or folded."""
        hidden = (index for group in self._groups.values() for index in group.positions[1:])
        key_of = self.listing.rows.key
        return next((index for index in chain(self.shown, hidden) if key_of(index) == key), None)

    def select_index(self, index: int, *, notify: bool = False) -> None:
        """Put the cursor on the record at that position, without a filter or a fold that hides it."""
        row = self._row_of(index)
        if row is None:
            self.filter("")
            row = self._row_of(index)
        if row is not None and self.shown[row] != index:
            self.unfolded = True
            self._show_all()
            self.rows_changed(0)
            row = self._row_of(index)
        if row is not None:
            self.place_cursor(row, notify=notify)

    def mark_line(self, file: str, line: int) -> None:
        """Mark the rows of a source line."""
        if self._lines is None:
            self._lines = LineIndex(self.listing.rows)
        self.mark_records(self._lines.rows_on(file, line))

    def mark_records(self, indices: tuple[int, ...]) -> None:
        """Mark records by their positions in the listing; those that a filter hides stay hidden."""
        rows = (self._row_of(index) for index in indices)
        self.mark(tuple(dict.fromkeys(row for row in rows if row is not None)))

    # The order.

    @property
    def _sorted_column(self) -> int | None:
        return self.sort.column_in(self.listing.columns) if self.sort is not None else None

    def action_sort(self) -> None:
        """Sort by the next column, the measures first; after the last one, in the table's own order."""
        self._sort_by(next_sort(self.sort, self._sortable))

    def action_reverse(self) -> None:
        """Reverse the order of the sorted column."""
        if self.sort is None:
            self.action_sort()
        if self.sort is not None:
            self._sort_by(Sort(self.sort.title, not self.sort.descending))

    @property
    def _sortable(self) -> Sequence[Column]:
        """Return the columns that are shown, or all before the first paint."""
        columns, widths = self.listing.columns, self._fitted[1]
        return [column for column, wide in zip(columns, widths, strict=True) if wide] if widths else columns

    def _sort_by(self, sort: Sort | None) -> None:
        """Change the order, and go to its first row."""
        self.sort = sort
        self._show_matching()
        self._measure_columns()
        self.rows_changed(0)
        self.place_cursor(0, notify=True)

    def _measure_columns(self) -> None:
        self._measures = measures(self.listing, self._sorted_column)
        self._fitted = (-1, ())

    def on_click(self, event: events.Click) -> None:
        if event.y >= self.header_height:
            super().on_click(event)
            return
        start = MARKER_WIDTH
        for column, wide in zip(self.listing.columns, self._fitted[1], strict=False):
            if wide and start <= event.x < start + wide + GAP and column.title:
                event.stop()
                self.focus()
                self._sort_by(clicked_sort(self.sort, column))
                return
            start += wide + GAP if wide else 0

    # What the base asks for.

    @property
    def row_count(self) -> int:
        return len(self.shown)

    @property
    def header_height(self) -> int:
        return 1

    def row_link(self, index: int) -> Link:
        return self.listing.rows.link(self.shown[index])

    def row_mark(self, index: int) -> str:
        positions = self._positions(self.shown[index])
        selected = sum(position in self.selected for position in positions)
        return " " if not selected else SELECTED if selected == len(positions) else PARTLY

    def select_records(self, positions: frozenset[int]) -> None:
        """Show which records the user has selected."""
        self.selected = positions
        self.refresh()

    def row_copy(self, index: int) -> str:
        return "\t".join(part(cell).text for cell in self._cells(self.shown[index]))

    def _cells(self, index: int) -> Cells:
        """Return the cells of a row, or of its group."""
        group, cells_of = self._groups.get(index), self.listing.group_cells
        if group is None or cells_of is None or len(group.positions) == 1:
            return self.listing.rows.cells(index)
        return cells_of(group)

    def empty_text(self) -> str:
        return f"no row matches {self.query_text!r}" if self.query_text else self.listing.empty

    def header_text(self, width: int) -> Text:
        column = self._sorted_column
        mark = MARKS[self.sort.descending] if self.sort is not None else ""
        titles = (
            Part(f"{each.title}{mark if index == column else ''}", "accent" if index == column else "")
            for index, each in enumerate(self.listing.columns)
        )
        return self._laid_out(tuple(titles), width)

    def row_text(self, index: int, width: int) -> Text:
        return self._laid_out(self._cells(self.shown[index]), width)

    def _laid_out(self, cells: Cells, width: int) -> Text:
        if self._fitted[0] != width:
            self._fitted = (width, fitted_widths(self.listing.columns, self._measures, width))
        text = Text(no_wrap=True, end="")
        for cell, column, cells_wide in zip(cells, self.listing.columns, self._fitted[1], strict=True):
            if cells_wide:
                text.append(" " * GAP if text else "")
                shown = part(cell)
                text.append_text(
                    self.part_text(Part(sized(shown.text, cells_wide, column.align), shown.role))
                )
        return text
