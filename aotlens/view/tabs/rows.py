"""Rows, lines and links: the plain values that widgets draw.

Invariant: everything that can be pointed at carries a `Link` to the source that it stands for.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from aotlens.model.report import Span
from aotlens.model.source import Outcome
from aotlens.view.fold import fold

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of text with its role; the theme gives roles their colours."""

    text: str
    role: str = ""
    """A `role--…` of `LOOKS` in `widgets/theme.py`; empty is plain text."""


Cell = str | Part

VERDICT_ROLES: dict[Outcome, str] = {"equal": "ok", "differs": "error", "not verified": "warning"}
"""The role of a comparison's outcome."""


@dataclass(frozen=True, slots=True)
class Link:
    """The source that a row stands for."""

    primary: tuple[Span, ...] = ()
    """The expressions themselves."""
    secondary: tuple[Span, ...] = ()
    """What is related: enclosing calls, uses in the backward."""


NO_LINK = Link()


@dataclass(frozen=True, slots=True)
class Jump:
    """Where Enter on a line leads: a row of another tab."""

    tab: str
    key: str = ""


Cells = tuple[Cell, ...]
"""One row of a table."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of prose or of a list; it can be pointed at when it has a link or a jump."""

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
    """How one column is laid out; natural width is measured on a sample of the rows."""

    title: str
    widest: int = 40
    """The width in cells that it never exceeds, unless it grows."""
    narrowest: int = 4
    """What it may shrink to when the table is narrow."""
    align: str = "left"
    """`left` or `right`."""
    grows: bool = False
    """Takes the room that is left."""
    drop: int = 0
    """Dropped when the table is narrow, the highest number first; 0 is never dropped."""
    cut: str = "end"
    """`end` or `middle`: what goes where the text is too long. Names of nodes tell most at both ends."""


class Rows(Protocol):
    """The rows of a table, made one by one when they are shown."""

    def __len__(self) -> int: ...

    def key(self, index: int) -> str:
        """Unique in its table, the same in the next trace when the thing is the same."""
        ...

    def cells(self, index: int) -> Cells: ...

    def text(self, index: int) -> str:
        """What the filter looks at."""
        ...

    def link(self, index: int) -> Link: ...


@dataclass(frozen=True, slots=True)
class LazyRows(Generic[Record]):
    """Rows over records: nothing is built before it is looked at."""

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
    """Their positions in the listing; the first stands for all."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table's content."""

    columns: tuple[Column, ...]
    rows: Rows
    empty: str
    """Said in place of the rows when there is none."""
    groups: tuple[Group, ...] = ()
    """Every row in one group, in the order of the folded table; empty where nothing folds."""
    group_cells: Callable[[Group], Cells] | None = None
    """The cells of a group of several rows."""


def grouped(
    records: Sequence[Record], name: Callable[[Record], str], same: Callable[[Record], Hashable]
) -> tuple[Group, ...]:
    """The folds over layers of some rows; none where every row stands alone."""
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
    """Whether the letters occur in the text in that order, with anything between."""
    position = 0
    for letter in letters:
        position = text.find(letter, position) + 1
        if not position:
            return False
    return True
