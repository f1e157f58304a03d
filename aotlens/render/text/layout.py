"""Lines and aligned rows for the text renderers.

Invariant: a line is a rich `Text`, so colour is decided only where it is printed; without colour the text
reads the same.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

WIDTH = 100
"""Columns when the output is no terminal."""

SMALL_SHARE = 0.01
"""Of a total: values below it are not shown one by one, unless everything is."""

KEEP = "\u00a0"
"""A blank at which no line ends: `12.2 ms` stays together."""

INDENT = "  "
GAP = "  "
LEAST_ROOM = 12
"""Columns that the last cell of a row has, however narrow the page is."""
CRAMPED = 24
"""Columns in which a last cell that needs more is not wrapped: it goes below the row."""
BELOW = "      "


@dataclass(frozen=True, slots=True)
class Page:
    """A page of text about one target."""

    width: int = WIDTH
    """Columns."""
    home: str | None = None
    """The file of the target, whose line numbers stand without it; None where every line names its file."""
    is_full: bool = True
    """Whether everything is shown, rather than what matters most on two screens."""

    scale: float = 1.0
    """Of the usual rows of each list on a short page, how many are shown."""

    def most(self, full: int, short: int) -> int:
        """How many rows of a list are shown."""
        return full if self.is_full else max(1, round(short * self.scale))

    def least(self, total: float) -> float:
        """Values below this part of a total are only counted."""
        return 0 if self.is_full else SMALL_SHARE * total

    @property
    def rest(self) -> str:
        """Where what is only counted is shown."""
        return "all are in --format json" if self.is_full else "--full shows more"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, with lines of its own below it."""

    cells: tuple[str, ...]
    styles: tuple[str, ...] = ()
    """One for each cell; cells beyond are plain."""
    details: tuple[Text, ...] = ()
    clip: bool = False
    """Whether the last cell is cut to one line, as for source text that the place below leads to."""


def heading(title: str, note: str = "") -> Text:
    """The line above a section."""
    return Text.assemble((title, "bold"), "  " if note else "", (note, "dim"))


def rule(title: str, note: str, width: int) -> Text:
    """A line across the page with a title on the left and a note on the right."""
    rest = max(3, width - cell_len(title) - cell_len(note) - 7)
    return Text.assemble(("── ", "blue"), (title, "bold blue"), (f" {'─' * rest} ", "blue"), (note, "dim"))


def table(rows: Sequence[Row], width: int, right: frozenset[int] = frozenset()) -> Iterator[Text]:
    """Aligned rows, the last cell wrapped under itself; `right` holds the columns of numbers.

    A last cell that would be cut into narrow pieces goes on a line of its own.  A column that is empty in
    every row takes no room.
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
    first, *more = [clipped(last, room)] if row.clip else wrapped(last, room) or [""]
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
    """The text in lines of at most `width`, the further ones after `hang`; names and paths are never cut, nor
    is text joined by KEEP."""
    lines = textwrap.wrap(text, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)
    return [line.replace(KEEP, " ") for line in lines]


def fitted(lines: Iterable[Text], width: int) -> Iterator[Text]:
    """Lines that fit the page; a heading or a name that is longer goes on below itself, at a blank.

    Source text (`no_wrap`) is as it is.
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


def clipped(text: str, width: int) -> str:
    """The text in one line of at most `width`, an ellipsis for what is cut."""
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def path_end(path: str, width: int) -> str:
    """The last parts of a path, as many as fit, after an ellipsis for what is cut; its file name always."""
    if len(path) <= width:
        return path
    parts = path.split("/")
    ends = ("/".join(["…", *parts[first:]]) for first in range(1, len(parts)))
    return next((end for end in ends if len(end) <= width), parts[-1])


def to_text(lines: Iterable[Text]) -> str:
    """The lines as plain text."""
    return "".join(f"{line.plain.rstrip()}\n" for line in lines)


def print_lines(lines: Iterable[Text], console: Console) -> None:
    """Print without wrapping or colouring anything further: a pipe gets the plain text."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def page_width(console: Console) -> int:
    """The terminal's width within reason; WIDTH for a pipe or a file."""
    return min(max(console.width, 60), 140) if console.is_terminal else WIDTH
