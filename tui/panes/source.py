"""The user's source: what is linked is lit, and each line says what it costs."""

from textual.app import ComposeResult
from textual.containers import Vertical

from aotlens.report.records import Report, Span, Target
from tui.view.marks import NO_MARK, SEVERITY_LETTERS, Marks, line_marks
from tui.view.places import file_key
from tui.view.quantities import gutter_size
from tui.view.rows import Link
from tui.view.source import SourceStore
from tui.widgets.code import CodeView

SAVED_WIDTH = 4


class SourcePane(Vertical):
    DEFAULT_CSS = """
    SourcePane { height: 1fr; }
    """

    def __init__(self, sources: SourceStore, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.sources = sources
        self.marks: Marks = {}
        self.file = ""

    def compose(self) -> ComposeResult:
        yield CodeView(id="source")

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

    def open(self, file: str, line: int = 1) -> None:
        """Show a file with the cursor on a line."""
        self.file = file
        text = self.sources.get(file)
        self.code.show(text, gutter=self._gutter if self.marks else None)
        self.code.place_cursor(line)
        self.border_title = text.problem.split("\n")[0] or short_path(file)

    def light(self, link: Link) -> None:
        """Light a link, opening the file that its first span stands in."""
        spans = link.primary or link.secondary
        if spans and not any(file_key(span.file) == file_key(self.file) for span in spans):
            self.open(spans[0].file, spans[0].line)
        self.code.light(link)

    def place(self) -> Span:
        """Where the cursor is, for the editor and for copying."""
        return Span(self.file, self.code.cursor, 0, self.code.cursor, 0)

    def _gutter(self, line: int) -> tuple[tuple[str, str], ...]:
        mark = self.marks.get((file_key(self.file), line), NO_MARK)
        saved = gutter_size(mark.saved_bytes) if mark.saved_bytes else ""
        fact = (
            ("M", "code--mutation") if mark.mutates else ("A", "code--alias") if mark.aliases else (" ", "")
        )
        level = mark.severity
        letter = (SEVERITY_LETTERS[level], f"code--{level}") if level else (" ", "")
        return ((f"{saved:>{SAVED_WIDTH}} ", "code--saved"), fact, letter)


def short_path(file: str) -> str:
    """At most the last three parts of a path."""
    parts = file.replace("\\", "/").split("/")
    return "/".join(parts[-3:]) if len(parts) > 3 else file
