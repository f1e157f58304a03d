"""The user's source: linked expressions are highlighted, and the gutter shows the cost of each line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.markup import escape
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Region

from aotlens.model.source import Span
from aotlens.model.spans import file_key
from aotlens.view.quantities import gutter_size
from aotlens.view.tabs.source.files import SourceStore
from aotlens.view.tabs.source.marks import NO_MARK, SEVERITY_LETTERS, Mark, Marks, line_marks, mark_text
from aotlens.view.tabs.tables.rows import Link
from tui.widgets.code import CodeView

SAVED_WIDTH, KERNELS_WIDTH = 4, 3
MOST_KERNELS = 99


if TYPE_CHECKING:  # the first paint comes before all records of the report
    from aotlens.model.failure import Failure
    from aotlens.model.report import Report, Target


class SourcePane(Vertical):
    DEFAULT_CSS = """
    SourcePane { height: 1fr; }
    """

    def __init__(self, sources: SourceStore, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.sources = sources
        self.marks: Marks = {}
        self.file = ""
        self._columns: tuple[bool, ...] = ()
        """The visible columns of the gutter."""
        self._title = ""
        self._is_retitled = False
        """True while only the border's first line is to be painted again."""

    def compose(self) -> ComposeResult:
        yield CodeView(id="source")

    def on_mount(self) -> None:
        self.watch(self.code, "cursor", self._describe)

    @property
    def code(self) -> CodeView:
        return self.query_one("#source", CodeView)

    def show_target(self, report: Report, target: Target | None) -> None:
        """Mark the lines of a target, and open its file at its definition unless the file is open already."""
        self.marks = line_marks(report, target)
        span = target.span if target else None
        if span is not None and (not self.file or file_key(span.file) != file_key(self.file)):
            self.open(span.file, span.line)
        elif self.file:
            self.open(self.file, self.code.cursor)

    def show_failure(self, failure: Failure) -> None:
        """Mark the line of a failure, and go to it; marks of an earlier report may no longer fit the text."""
        from aotlens.diagnostics.failures import from_failure  # with the report's records
        from aotlens.model.report import Report

        report = Report("", "", "", diagnostics=(from_failure(failure),))
        self.marks = line_marks(report, None)
        self.open(failure.file or self.file, failure.line or 1)

    def open(self, file: str, line: int = 1, *, coloured: bool = True) -> None:
        """Show a file with the cursor on a line."""
        self.file = file
        text = self.sources.get(file)
        self._columns = self._columns_of(file)
        self.code.show(text, coloured=coloured, gutter=self._gutter if self.marks else None)
        self.code.place_cursor(line)
        self._describe(self.code.cursor)

    def light(self, link: Link) -> None:
        """Highlight a link, and open the file of its first span."""
        spans = link.primary or link.secondary
        if spans and not any(file_key(span.file) == file_key(self.file) for span in spans):
            self.open(spans[0].file, spans[0].line)
        self.code.light(link)
        self._describe(self.code.cursor)

    def cursor_span(self) -> Span:
        """Return the cursor's position, for the editor and for copying."""
        return Span(self.file, self.code.cursor, 0, self.code.cursor, 0)

    def _gutter(self, line: int) -> tuple[tuple[str, str], ...]:
        mark = self._mark(line)
        saved = gutter_size(mark.saved_bytes) if mark.saved_bytes else ""
        kernels = f"k{min(mark.kernels, MOST_KERNELS)}" if mark.kernels else ""
        level = mark.severity
        pieces = (
            (f"{saved:>{SAVED_WIDTH}} ", "code--saved"),
            (f"{kernels:<{KERNELS_WIDTH}} ", "code--kernels"),
            ("M" if mark.mutates else " ", "code--mutation"),
            ("A" if mark.aliases else " ", "code--alias"),
            (SEVERITY_LETTERS[level] if level else " ", f"code--{level}" if level else ""),
        )
        return tuple(piece for piece, shown in zip(pieces, self._columns, strict=True) if shown)

    def _mark(self, line: int) -> Mark:
        return self.marks.get((file_key(self.file), line), NO_MARK)

    def _columns_of(self, file: str) -> tuple[bool, ...]:
        """Return the kinds of marks that the file's lines have: other kinds take no room."""
        marks = [mark for (name, _), mark in self.marks.items() if name == file_key(file)]
        return (
            any(mark.saved_bytes for mark in marks),
            any(mark.kernels for mark in marks),
            any(mark.mutates for mark in marks),
            any(mark.aliases for mark in marks),
            any(mark.severity for mark in marks),
        )

    def _describe(self, line: int) -> None:
        """Show in the title the gutter's marks in words, for the line under the cursor."""
        if not self.file:
            return
        text = mark_text(self._mark(line))
        name = self.sources.get(self.file).problem.split("\n")[0] or short_path(self.file)
        self._retitle(f"{name} · {line}: {text}" if text else name)

    def _retitle(self, title: str) -> None:
        """Show another title; Textual would paint all of the source again, with every key in a table."""
        if title == self._title:
            return
        self._title = title
        self._is_retitled = True
        self.border_title = escape(title)
        self._is_retitled = False

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> Self:
        if self._is_retitled:
            left, top = self.content_offset
            regions = (Region(-left, -top, self.outer_size.width, 1),)
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)


def short_path(file: str) -> str:
    """At most the last three parts of a path."""
    parts = file.replace("\\", "/").split("/")
    return "/".join(parts[-3:]) if len(parts) > 3 else file
