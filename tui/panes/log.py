"""The output of the user's code during the trace."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from aotlens.view.tabs.source.files import from_text
from tui.panes.base import Pane, Subject
from tui.widgets.code import CodeView

QUIET = "the traced run printed nothing"


class LogPane(Pane):
    TAB: ClassVar[str] = "log"

    def compose(self) -> ComposeResult:
        yield CodeView(id="log-text")

    def fill(self, subject: Subject) -> None:
        self.query_one(CodeView).show(from_text(subject.output or QUIET, "<log>"), coloured=False)

    def main(self) -> Widget:
        return self.query_one(CodeView)

    def on_code_view_moved(self, event: CodeView.Moved) -> None:
        """Ignore the cursor: the log has no source."""
        event.stop()
