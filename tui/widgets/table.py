"""A table of any length: columns fitted to the width, rows made when shown, a filter."""

from itertools import chain

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from aotlens.view.kernels import without_middle
from aotlens.view.tabs.rows import Cell, Cells, Column, Group, LazyRows, Link, Listing, Part, matching
from aotlens.view.tabs.spans import LineIndex
from tui.widgets.row_list import RowList

GAP = 2
SAMPLE = 64
"""Rows measured at each end of the table for the natural widths of its columns."""

NOTHING = Listing((Column(""),), LazyRows((), str, lambda _: (), str, lambda _: Link()), "")


class VirtualTable(RowList):
    """Shows a `Listing`."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.listing = NOTHING
        self.query_text = ""
        self.shown: tuple[int, ...] | range = range(0)
        """Positions in the listing of the rows that pass the filter; of a group the first."""
        self.unfolded = False
        """True if identical layers are not folded."""
        self._groups: dict[int, Group] = {}
        """By the position of its first row; empty while unfolded and while a filter searches every row."""
        self._row_of_position: dict[int, int] | None = None
        """For each position in the listing the row that shows it; built when it is first needed."""
        self._natural: tuple[int, ...] = ()
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
        self._natural = natural_widths(listing)
        self._fitted = (-1, ())
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

    def _show_all(self) -> None:
        """No filter: every row, or the first of each group."""
        groups = () if self.unfolded else self.listing.groups
        self._groups = {group.positions[0]: group for group in groups}
        self.shown = tuple(self._groups) if groups else range(len(self.listing.rows))
        self._row_of_position = None

    def filter(self, query: str) -> None:
        """Keep the rows that match; an empty query keeps all."""
        index = self.record_index
        self.query_text = query
        if query.strip():
            self._groups = {}
            self.shown = matching(self.listing.rows, query)
            self._row_of_position = None
        else:
            self._show_all()
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
        if index is None:
            return ()
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

    # What the base asks for.

    @property
    def row_count(self) -> int:
        return len(self.shown)

    @property
    def header_height(self) -> int:
        return 1

    def row_link(self, index: int) -> Link:
        return self.listing.rows.link(self.shown[index])

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
        titles = tuple(Part(column.title) for column in self.listing.columns)
        return self._laid_out(titles, width)

    def row_text(self, index: int, width: int) -> Text:
        return self._laid_out(self._cells(self.shown[index]), width)

    def _laid_out(self, cells: Cells, width: int) -> Text:
        if self._fitted[0] != width:
            self._fitted = (width, fitted_widths(self.listing.columns, self._natural, width))
        text = Text(no_wrap=True, end="")
        for cell, column, cells_wide in zip(cells, self.listing.columns, self._fitted[1], strict=True):
            if cells_wide:
                text.append(" " * GAP if text else "")
                shown = part(cell)
                text.append_text(self.part_text(Part(sized(shown.text, cells_wide, column), shown.role)))
        return text


def part(cell: Cell) -> Part:
    return Part(cell) if isinstance(cell, str) else cell


def sized(text: str, width: int, column: Column) -> str:
    """Return the text in exactly `width` cells."""
    length = cell_len(text)
    if length > width and column.cut == "middle" and length == len(text) and text.isprintable():
        return without_middle(text, width)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - length) + text if column.align == "right" else text + " " * (width - length)


def natural_widths(listing: Listing) -> tuple[int, ...]:
    """Return the widest cell of each column in a sample, at most the column's limit; 0 for an empty
    column."""
    total = len(listing.rows)
    sample = [*range(min(SAMPLE, total)), *range(max(SAMPLE, total - SAMPLE), total)]
    widths = [0 if column.drop else cell_len(column.title) for column in listing.columns]
    rows = [listing.rows.cells(index) for index in sample]
    if listing.group_cells is not None:
        rows += [listing.group_cells(group) for group in listing.groups[:SAMPLE] if len(group.positions) > 1]
    for cells in rows:
        for position, cell in enumerate(cells):
            if length := cell_len(part(cell).text):
                widths[position] = max(widths[position], length, cell_len(listing.columns[position].title))
    return tuple(map(natural_width, listing.columns, widths))


def natural_width(column: Column, width: int) -> int:
    """Return the natural width; a column of bars has no title and one width, since a longer bar may be
    outside the sample."""
    if width and not column.title and column.narrowest == column.widest:
        return column.widest
    return width if column.grows else min(width, column.widest)


def fitted_widths(columns: tuple[Column, ...], natural: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Return widths that fit: first columns shrink, then columns are dropped; 0 hides a column."""
    least = [min(wide, column.narrowest) for column, wide in zip(columns, natural, strict=True)]
    visible = [position for position, wide in enumerate(natural) if wide]
    while total(least, visible) > width and any(columns[position].drop for position in visible):
        visible.remove(max(visible, key=lambda position: columns[position].drop))
    widths = [least[position] if position in visible else 0 for position in range(len(columns))]
    spare = width - total(widths, visible)
    # The columns that lack least get their full width first; growing ones share the rest.
    for position in sorted(visible, key=lambda position: natural[position] - widths[position]):
        if columns[position].grows:
            continue
        more = min(spare, natural[position] - widths[position])
        if more > 0:
            widths[position] += more
            spare -= more
    growing = [position for position in visible if columns[position].grows]
    for position in level(growing, widths, spare):
        widths[position] += 1
    return tuple(widths)


def level(growing: list[int], widths: list[int], spare: int) -> list[int]:
    """Return the column that gets each of the spare cells: always the narrowest of those that grow."""
    current = {position: widths[position] for position in growing}
    order: list[int] = []
    for _ in range(spare if growing else 0):
        narrowest = min(growing, key=lambda position: current[position])
        current[narrowest] += 1
        order.append(narrowest)
    return order


def total(widths: list[int], visible: list[int]) -> int:
    return sum(widths[position] for position in visible) + GAP * max(0, len(visible) - 1)
