"""The content before the first result: the progress of the trace, or the reason for a failure."""

from textual.app import ComposeResult
from textual.containers import Vertical

from aotlens.model.failure import Failure
from aotlens.view.tabs.source.files import from_text
from aotlens.view.tabs.tables.rows import Line
from aotlens.view.tabs.trace_state import failure_lines
from tui.panes.registry import LOG_KEY
from tui.widgets.code import CodeView
from tui.widgets.lines import LineList


class ProgressPane(Vertical):
    DEFAULT_CSS = "ProgressPane { padding: 1 2; height: 1fr; }"

    def compose(self) -> ComposeResult:
        yield LineList(id="progress-lines")

    def show(self, lines: tuple[Line, ...]) -> None:
        self.query_one(LineList).show(lines)


class FailurePane(Vertical):
    """The user's own traceback under one sentence."""

    DEFAULT_CSS = """
    FailurePane { padding: 1 1 0 1; height: 1fr; }
    FailurePane #failure-lines { height: auto; max-height: 50%; }
    FailurePane #traceback { height: 1fr; border-top: solid $panel; }
    """

    def compose(self) -> ComposeResult:
        yield LineList(id="failure-lines")
        yield CodeView(id="traceback")

    def show(self, failure: Failure) -> None:
        self.query_one(LineList).show(failure_lines(failure, LOG_KEY))
        code = self.query_one(CodeView)
        code.show(from_text(failure.traceback.rstrip(), "<traceback>"), coloured=False)
        code.display = bool(failure.traceback)

    def on_code_view_moved(self, event: CodeView.Moved) -> None:
        """Ignore the cursor: the traceback has no rows."""
        event.stop()
