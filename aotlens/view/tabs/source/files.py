"""Source files for display: read once, tabs expanded, spans turned into display columns.

Spans count UTF-8 bytes; a display column counts characters of the expanded line.
"""

from __future__ import annotations

import os
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.model.spans import file_key

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import Span

TAB_SIZE = 4
LONGEST_LINE = 2000
"""Characters shown of one line; generated one-line files would stall the terminal."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """One file."""

    file: str
    """The file's name in the report."""
    raw: tuple[str, ...]
    lines: tuple[str, ...]
    """As drawn: tabs expanded, control characters replaced."""
    problem: str = ""
    """Why there is no text; empty where there is one."""

    def columns(self, span: Span, line: int) -> tuple[int, int]:
        """Return the part of a 1-based line that the span covers, as display columns."""
        if not 1 <= line <= len(self.raw):
            return (0, 0)  # the file was shortened after the trace
        raw, shown = self.raw[line - 1], self.lines[line - 1]
        indent = len(shown) - len(shown.lstrip())
        start = display_column(raw, span.col) if line == span.line else indent
        end = display_column(raw, span.end_col) if line == span.end_line else len(shown)
        return (start, max(start, end))


def display_column(raw: str, byte_column: int) -> int:
    """Return the display column of a UTF-8 byte column."""
    before = raw.encode("utf-8", "replace")[:byte_column].decode("utf-8", "ignore")
    return len(before.expandtabs(TAB_SIZE))


def displayed(raw: str) -> str:
    """Return the line for display, one cell per control character."""
    line = raw.expandtabs(TAB_SIZE)[:LONGEST_LINE]
    return line if line.isprintable() else "".join(char if char.isprintable() else "·" for char in line)


def from_text(text: str, file: str = "", problem: str = "") -> SourceText:
    raw = tuple(text.split("\n"))
    if raw and raw[-1] == "":
        raw = raw[:-1]
    return SourceText(file, raw, tuple(displayed(line) for line in raw), problem)


class SourceStore:
    """Reads files for the source pane, looking in `roots` for relative names."""

    def __init__(self, roots: tuple[str, ...] = ()) -> None:
        self._roots = roots
        self._texts: dict[str, SourceText] = {}

    def forget(self) -> None:
        """Read all files again: they may have changed."""
        self._texts.clear()

    def get(self, file: str) -> SourceText:
        key = file_key(file)
        if key not in self._texts:
            self._texts[key] = self._read(file)
        return self._texts[key]

    def path(self, file: str) -> Path | None:
        """Return the file's path on this machine; None if it does not exist."""
        candidates = [Path(file), *(Path(root) / file for root in self._roots)]
        return next((path for path in candidates if path.is_file()), None)

    def _read(self, file: str) -> SourceText:
        path = self.path(file)
        if path is None:
            where = os.path.basename(file) or file
            return from_text("", file, f"{where} is not on this machine\n{file}")
        try:
            with tokenize.open(path) as stream:
                return from_text(stream.read(), file)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            return from_text("", file, f"{file} cannot be read\n{error}")
