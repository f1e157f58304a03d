"""Graph breaks, recompilations, constants, guards and compile time of the script."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from aotlens.view.tabs.dynamo import why_lines
from aotlens.view.tabs.source.spans import covers
from tui.panes.base import Pane, Subject
from tui.widgets.lines import LineList


class WhyPane(Pane):
    TAB: ClassVar[str] = "why"

    def compose(self) -> ComposeResult:
        yield LineList(id="why-lines")

    def fill(self, subject: Subject) -> None:
        self.query_one(LineList).show(why_lines(subject.report.dynamo))

    def main(self) -> Widget:
        return self.query_one(LineList)

    def mark_line(self, file: str, line: int) -> None:
        lines = self.query_one(LineList)
        rows = range(lines.row_count)
        lines.mark(
            tuple(row for row in rows if lines.can_rest(row) and covers(lines.row_link(row), file, line))
        )
