"""Lines and aligned rows for the text renderers.

Invariant: a line is a rich `Text`, so that only printing decides on colour; without colour the text reads the
same.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from aotlens.view.shorten import end_cut

T = TypeVar("T")

WIDTH = 100
"""Columns when the output is no terminal."""

SMALL_SHARE = 0.01
"""Values below this share of a total are not listed, unless everything is."""

KEEP = "\u00a0"
"""A blank at which no line ends: `12.2 ms` stays together."""

INDENT = "  "
GAP = "  "
LEAST_ROOM = 12
"""Columns that the last cell of a row has, however narrow the page is."""
CRAMPED = 24
"""A last cell that needs more than these columns goes below the row instead of being wrapped."""
BELOW = "      "


@dataclass(frozen=True, slots=True)
class Page:
    """A page of text about one target."""

    width: int = WIDTH
    """Columns."""
    home: str | None = None
    """The file of the target, whose lines are shown without it; None where every line names its file."""
    is_full: bool = True
    """True if everything is shown, instead of the most important facts on two screens."""

    scale: float = 1.0
    """Of the usual rows of each list on a short page, how many are shown."""

    def few(self, usual: int) -> int:
        """Return how many rows of a list a short page shows: the usual number, scaled."""
        return max(1, round(usual * self.scale))

    def most(self, full: int, usual: int) -> int:
        """Return how many rows of a list are shown, of which a full page has its own limit."""
        return full if self.is_full else self.few(usual)

    def first(self, rows: Sequence[T], usual: int) -> Sequence[T]:
        """Return the rows of a list that are shown: all on a full page."""
        return rows if self.is_full else rows[: self.few(usual)]

    def least(self, total: float) -> float:
        """Values below this part of a total are only counted."""
        return 0 if self.is_full else SMALL_SHARE * total

    @property
    def rest(self) -> str:
        """Return the option that shows the counted rest."""
        return "all are in --format json" if self.is_full else "--full shows more"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, with further lines below it."""

    cells: tuple[str, ...]
    styles: tuple[str, ...] = ()
    """One for each cell; cells beyond are plain."""
    details: tuple[Text, ...] = ()
    clip: bool = False
    """True if the last cell is cut to one line, as for source text whose location is shown below."""


def heading(title: str, note: str = "") -> Text:
    """Return the line above a section."""
    return Text.assemble((title, "bold"), "  " if note else "", (note, "dim"))


def rule(title: str, note: str, width: int) -> Text:
    """Return a line across the page with a title on the left and a note on the right."""
    rest = max(3, width - cell_len(title) - cell_len(note) - 7)
    return Text.assemble(("── ", "blue"), (title, "bold blue"), (f" {'─' * rest} ", "blue"), (note, "dim"))


def table(rows: Sequence[Row], width: int, right: frozenset[int] = frozenset()) -> Iterator[Text]:
    """Yield aligned rows, the last cell wrapped under itself; `right` holds the columns of numbers.

    A last cell that would be cut into narrow pieces goes on a line below. A column that is empty in every row
    takes no room.
    """
    if not rows:
        return
    widths = [
        max(cell_len(row.cells[position]) for row in rows) for position in range(len(rows[0].cells) - 1)
    ]
    for row in rows:
        yield from _row(row, widths, width, right)
        yield from row.details


def _row(row: Row, widths: list[int], width: int, right: frozenset[int]) -> Iterator[Text]:
    """Yield the lines of a row; its last cell is wrapped below itself, or below the row if it is narrow."""
    line = Text(INDENT)
    for position, cell in enumerate(row.cells[:-1]):
        if not widths[position]:
            continue
        pad = " " * (widths[position] - cell_len(cell))
        style = row.styles[position] if position < len(row.styles) else ""
        line.append(pad if position in right else "").append(cell, style)
        line.append("" if position in right else pad).append(GAP)
    hang = line.cell_len
    style = row.styles[len(row.cells) - 1] if len(row.styles) >= len(row.cells) else ""
    last = row.cells[-1]
    if not row.clip and width - hang < min(CRAMPED, cell_len(last)):
        line.rstrip()
        yield line
        line, hang = Text(BELOW), len(BELOW)
    room = max(LEAST_ROOM, width - hang)
    first, *more = [end_cut(last, room)] if row.clip else wrapped(last, room) or [""]
    line.append(first, style)
    line.rstrip()
    yield line
    for text in more:
        yield Text(" " * hang).append(text, style)


def paragraph(text: str, width: int, indent: str, style: str = "") -> Iterator[Text]:
    """Wrapped text, indented."""
    for line in wrapped(text, width - len(indent)):
        yield Text(indent).append(line, style)


def wrapped(text: str, width: int, hang: str = "") -> list[str]:
    """Return the text in lines of at most `width`, the further ones after `hang`; names, paths and text
    joined by KEEP are never cut."""
    lines = textwrap.wrap(text, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)
    return [line.replace(KEEP, " ") for line in lines]


def fitted(lines: Iterable[Text], width: int) -> Iterator[Text]:
    """Yield lines that fit the page; a longer heading or name continues below itself, at a blank.

    Source text (`no_wrap`) stays unchanged.
    """
    for line in lines:
        if line.cell_len <= width or line.no_wrap:
            yield line
        else:
            yield from _split(line, width)


def _split(line: Text, width: int) -> Iterator[Text]:
    indent = len(line.plain) - len(line.plain.lstrip())
    position = line.plain.rfind(" ", indent + 1, width + 1)
    if position <= indent:
        yield line
        return
    first, rest = line.divide([position])
    first.rstrip()
    yield first
    begin = len(rest.plain) - len(rest.plain.lstrip())
    yield from fitted([Text(" " * min(indent + 4, width // 2)).append_text(rest[begin:])], width)


def path_end(path: str, width: int) -> str:
    """Return the last parts of a path that fit, after an ellipsis for the rest; the file name always."""
    if len(path) <= width:
        return path
    parts = path.split("/")
    ends = ("/".join(["…", *parts[first:]]) for first in range(1, len(parts)))
    return next((end for end in ends if len(end) <= width), parts[-1])


def to_text(lines: Iterable[Text]) -> str:
    """Return the lines as plain text."""
    return "".join(f"{line.plain.rstrip()}\n" for line in lines)


def print_lines(lines: Iterable[Text], console: Console) -> None:
    """Print without wrapping or colouring anything further: a pipe gets the plain text."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def page_width(console: Console) -> int:
    """Return the terminal's width within limits; WIDTH for a pipe or a file."""
    return min(max(console.width, 60), 140) if console.is_terminal else WIDTH
