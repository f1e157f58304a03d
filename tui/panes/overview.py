"""The first screen."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from tui.panes.base import Pane, Subject
from tui.view.overview import overview
from tui.view.places import covers
from tui.widgets.lines import LineList


class OverviewPane(Pane):
    TAB: ClassVar[str] = "overview"

    def compose(self) -> ComposeResult:
        yield LineList(id="overview-lines")

    def fill(self, subject: Subject) -> None:
        lines = overview(subject.report, subject.target, subject.changed, self.size.height or None)
        if lines != self.query_one(LineList).lines:
            self.query_one(LineList).show(lines)

    def on_resize(self) -> None:
        """What the first screen holds depends on its height."""
        if self.subject is not None:
            self.fill(self.subject)

    def main(self) -> Widget:
        return self.query_one(LineList)

    def mark_line(self, file: str, line: int) -> None:
        lines = self.query_one(LineList)
        lines.mark(
            tuple(
                row
                for row in range(lines.row_count)
                if lines.can_rest(row) and covers(lines.row_link(row), file, line)
            )
        )
