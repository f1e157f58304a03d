"""The first screen."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from aotlens.view.tabs.overview.screen import Overview, overview
from aotlens.view.tabs.source.spans import covers
from tui.panes.base import Pane, Subject
from tui.widgets.lines import LineList


class OverviewPane(Pane):
    TAB: ClassVar[str] = "overview"

    def compose(self) -> ComposeResult:
        yield LineList(id="overview-lines")

    overview: Overview | None = None

    def fill(self, subject: Subject) -> None:
        self.overview = overview(subject.report, subject.target, subject.changed)
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Choose the lines of the first screen by its height."""
        lines = self.overview.lines(self.size.height or None) if self.overview is not None else ()
        if lines != self.query_one(LineList).lines:
            self.query_one(LineList).show(lines)

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
