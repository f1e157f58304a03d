"""The rows of a tab that belong to a source line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aotlens.model.spans import file_key
from aotlens.view.tabs.tables.rows import Link, Rows

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import Span


def lines_of(span: Span) -> range:
    """Return the 1-based lines of a span."""
    return range(span.line, span.end_line + 1)


class LineIndex:
    """The rows of each source line; built when it is first needed."""

    def __init__(self, rows: Rows) -> None:
        self.inner: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self.outer: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for index in range(len(rows)):
            link = rows.link(index)
            self._note(self.inner, link.primary, index)
            self._note(self.outer, link.secondary, index)

    def rows_on(self, file: str, line: int) -> tuple[int, ...]:
        """Return the rows whose own expression is on the line; else those that are related to it."""
        key = (file_key(file), line)
        return tuple(self.inner.get(key) or self.outer.get(key) or ())

    @staticmethod
    def _note(table: defaultdict[tuple[str, int], list[int]], spans: Iterable[Span], index: int) -> None:
        for key in {(file_key(span.file), line) for span in spans for line in lines_of(span)}:
            table[key].append(index)


def covers(link: Link, file: str, line: int) -> bool:
    """Return True if the link's own expressions touch that line."""
    key = file_key(file)
    return any(file_key(span.file) == key and line in lines_of(span) for span in link.primary)
