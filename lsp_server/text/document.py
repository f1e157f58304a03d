"""The text of one open document, as the client has it.

Invariant: lines end at `\\n`, `\\r\\n` and `\\r` only, as in the protocol and in Python's tokenizer; a form
feed or a Unicode line separator inside a line does not end it (`str.splitlines` would split there).
"""

import re
from dataclasses import dataclass

from lsp_server.text.positions import Encoding, char_index

TERMINATED_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)")


@dataclass(frozen=True, slots=True)
class TextChange:
    """One change of the client's: a range is replaced, or the whole text without a range."""

    text: str
    start: tuple[int, int] | None = None
    """0-based line, and column in the client's units; None replaces everything."""
    end: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class LineEdit:
    """A change in whole lines, without their line ends."""

    first: int
    """The first changed line, 0-based."""
    old: tuple[str, ...]
    new: tuple[str, ...]
    keeps_tail: bool = False
    """True if the change began at column 0; matching lines are then searched from the end first."""


def split_lines(text: str) -> list[str]:
    """Return the lines with their ends; the last one has none and may be empty."""
    lines: list[str] = TERMINATED_LINE.findall(text)
    lines.append(text[sum(map(len, lines)) :])
    return lines


def content(line: str) -> str:
    return line.rstrip("\r\n")


def contents(text: str) -> list[str]:
    """Return the lines without their ends."""
    return [content(line) for line in split_lines(text)]


class Document:
    """One open document; changes are applied in the order in which the client sent them."""

    def __init__(self, uri: str, text: str, version: int | None) -> None:
        self.uri = uri
        self.version = version
        self._lines = split_lines(text)
        self._contents = [content(line) for line in self._lines]

    @property
    def text(self) -> str:
        return "".join(self._lines)

    @property
    def lines(self) -> list[str]:
        """Return the lines without their ends; not to be changed."""
        return self._contents

    def line(self, number: int) -> str:
        """Line `number` (0-based), or the empty string past the end."""
        return self._contents[number] if 0 <= number < len(self._contents) else ""

    def apply(self, change: TextChange, encoding: Encoding) -> LineEdit:
        """Apply the change and return the lines that it touched."""
        if change.start is None or change.end is None:
            return self._replace(0, len(self._lines), change.text)
        (first, start_char), (last, end_char) = sorted(
            (self._clamp(change.start, encoding), self._clamp(change.end, encoding))
        )
        head, tail = self._lines[first][:start_char], self._lines[last][end_char:]
        block = head + change.text + tail
        if block.startswith("\n") and first > 0 and self._lines[first - 1].endswith("\r"):
            first -= 1
            block = self._lines[first] + block
        return self._replace(first, last + 1, block, keeps_tail=start_char == 0)

    def _clamp(self, position: tuple[int, int], encoding: Encoding) -> tuple[int, int]:
        line, units = position
        if line >= len(self._lines):
            return len(self._lines) - 1, len(self._contents[-1])
        line = max(line, 0)
        return line, char_index(self._contents[line], units, encoding)

    def _replace(self, first: int, end: int, block: str, keeps_tail: bool = False) -> LineEdit:
        lines = split_lines(block)
        if end < len(self._lines) and lines[-1] == "":
            lines.pop()  # the block has its last line's end, so nothing follows it
        new = [content(line) for line in lines]
        edit = LineEdit(first, tuple(self._contents[first:end]), tuple(new), keeps_tail)
        self._lines[first:end] = lines
        self._contents[first:end] = new
        return edit
