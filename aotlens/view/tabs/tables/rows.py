"""Rows, lines and links: the plain values that widgets draw.

Invariant: every selectable line or row has a `Link` to its source.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from aotlens.model.source import Outcome
from aotlens.view.fold import fold
from aotlens.view.quantities import human_bytes

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import Span

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of text with its role; the theme gives each role a colour."""

    text: str
    role: str = ""
    """A `role--…` of `LOOKS` in `widgets/theme.py`; empty is plain text."""
    value: float | None = None
    """The number by which a table sorts, where the text has a unit: the bytes of `1.5 MiB`."""


Cell = str | Part


def part(cell: Cell) -> Part:
    return Part(cell) if isinstance(cell, str) else cell


def size_part(size_bytes: int | None, role: str = "") -> Part:
    """Return a size as a cell that sorts by its bytes."""
    return Part(human_bytes(size_bytes), role, size_bytes)


VERDICT_ROLES: dict[Outcome, str] = {"equal": "ok", "differs": "error", "not verified": "warning"}
"""The role of each outcome of a comparison."""


@dataclass(frozen=True, slots=True)
class Link:
    """The source of a row."""

    primary: tuple[Span, ...] = ()
    """The expressions themselves."""
    secondary: tuple[Span, ...] = ()
    """Related source: enclosing calls, uses in the backward."""


NO_LINK = Link()


@dataclass(frozen=True, slots=True)
class Jump:
    """The row of another tab to which Enter on a line leads."""

    tab: str
    key: str = ""
    target: int | None = None
    """The index in the report of the target whose tab it is; None for the open target."""


Cells = tuple[Cell, ...]
"""One row of a table."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of prose or of a list; it is selectable if it has a link or a jump."""

    parts: tuple[Part, ...] = ()
    link: Link = NO_LINK
    jump: Jump | None = None
    wrap: bool = False
    """Continue on further lines (indented) instead of being cut at the edge."""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True)
class Column:
    """The layout of one column; its natural width is measured on a sample of the rows."""

    title: str
    widest: int = 40
    """Its greatest width in cells, unless it grows."""
    narrowest: int = 4
    """Its smallest width when the table is narrow."""
    align: str = "left"
    """`left` or `right`."""
    grows: bool = False
    """True if it takes the remaining room."""
    drop: int = 0
    """Dropped when the table is narrow, the highest number first; 0 is never dropped."""
    largest_first: bool = False
    """True for a measure: sorting by it begins with the largest value, and before the other columns."""


class Rows(Protocol):
    """The rows of a table, each made when the app's `VirtualTable` or the page's `Encoder` shows it."""

    def __len__(self) -> int: ...

    def key(self, index: int) -> str:
        """Return a key that is unique in the table and that the same thing has in the next trace."""
        ...

    def cells(self, index: int) -> Cells: ...

    def text(self, index: int) -> str:
        """Return the text that the filter searches."""
        ...

    def link(self, index: int) -> Link: ...


@dataclass(frozen=True, slots=True)
class LazyRows(Generic[Record]):
    """Rows made from records when they are shown."""

    records: Sequence[Record]
    to_key: Callable[[Record], str]
    to_cells: Callable[[Record], Cells]
    to_text: Callable[[Record], str]
    to_link: Callable[[Record], Link]

    def __len__(self) -> int:
        return len(self.records)

    def key(self, index: int) -> str:
        return self.to_key(self.records[index])

    def cells(self, index: int) -> Cells:
        return self.to_cells(self.records[index])

    def text(self, index: int) -> str:
        return self.to_text(self.records[index])

    def link(self, index: int) -> Link:
        return self.to_link(self.records[index])


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of identical layers, shown as one until they are unfolded."""

    label: str
    """Their common name with the range of layers: `×12 blocks.0–11.attn.weight`."""
    positions: tuple[int, ...]
    """Their positions in the listing; the first one is shown."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of a table."""

    columns: tuple[Column, ...]
    rows: Rows
    empty: str
    """The text of a table without rows."""
    groups: tuple[Group, ...] = ()
    """All rows in groups, in the order of the folded table; empty where nothing folds."""
    group_cells: Callable[[Group], Cells] | None = None
    """Returns the cells of a group of several rows."""


def grouped(
    records: Sequence[Record], name: Callable[[Record], str], same: Callable[[Record], Hashable]
) -> tuple[Group, ...]:
    """Return the rows folded over layers; empty if no two rows fold."""
    folds = fold(tuple(enumerate(records)), lambda item: name(item[1]), lambda item: same(item[1]))
    if len(folds) == len(records):
        return ()
    return tuple(
        Group(f"{group.times} {group.label}".strip(), tuple(index for index, _ in group.items))
        for group in folds
    )


def matching(rows: Rows, query: str) -> tuple[int, ...]:
    """Rows that hold every word of the query; where none does, those that hold its letters in order."""
    words = query.casefold().split()
    if not words:
        return tuple(range(len(rows)))
    texts = [rows.text(index).casefold() for index in range(len(rows))]
    exact = tuple(index for index, text in enumerate(texts) if all(word in text for word in words))
    return exact or tuple(index for index, text in enumerate(texts) if in_order("".join(words), text))


def in_order(letters: str, text: str) -> bool:
    """Return True if the letters occur in the text in that order, with anything between."""
    position = 0
    for letter in letters:
        position = text.find(letter, position) + 1
        if not position:
            return False
    return True
