"""The runtime wrapper: its steps, and the text of the module that runs."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from aotlens.model.report import WrapperStep
from aotlens.view.tabs.source.files import from_text
from aotlens.view.tabs.wrapper import ordered_steps, step_at, step_details, step_listing
from tui.panes.base import Pane, Subject
from tui.widgets.code import CodeView
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable

MODULE = "<module>"
"""The file name of the module text; no file of the user's has it."""


class WrapperPane(Pane):
    TAB: ClassVar[str] = "wrapper"
    DEFAULT_CSS = """
    WrapperPane #steps { height: auto; max-height: 33%; min-height: 3; }
    WrapperPane #step-detail { height: auto; max-height: 5; border-top: solid $panel; }
    WrapperPane #module { border-top: solid $panel; }
    """

    def compose(self) -> ComposeResult:
        yield VirtualTable(id="steps")
        yield LineList(id="step-detail")
        yield CodeView(id="module")

    def fill(self, subject: Subject) -> None:
        wrapper = subject.target.wrapper
        self.query_one("#steps", VirtualTable).show(step_listing(subject.target))
        code = self.query_one("#module", CodeView)
        code.show(from_text(wrapper.source if wrapper else "", MODULE))
        if self.steps:
            self._light(self.steps[0])

    @property
    def steps(self) -> tuple[WrapperStep, ...]:
        return ordered_steps(self.subject.target.wrapper) if self.subject else ()

    def main(self) -> Widget:
        return self.query_one("#steps")

    def reveal(self, key: str) -> None:
        self.query_one("#steps", VirtualTable).select(key, notify=True)
        self.main().focus()

    def mark_line(self, file: str, line: int) -> None:
        table = self.query_one("#steps", VirtualTable)
        table.mark_line(file, line)
        if table.linked and table.record_index is not None:
            self._light(self.steps[table.record_index])

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        index = self.query_one("#steps", VirtualTable).record_index
        if index is not None and event.sender.id == "steps":
            self._light(self.steps[index])

    def on_code_view_moved(self, event: CodeView.Moved) -> None:
        """Select the step of the module's line, and highlight its source."""
        event.stop()
        index = step_at(self.steps, event.line)
        if index is None:
            return
        table = self.query_one("#steps", VirtualTable)
        table.select_index(index)
        self._light(self.steps[index], follow=False)
        self.post_message(self.Lit(table.listing.rows.link(index)))

    def _light(self, step: WrapperStep, *, follow: bool = True) -> None:
        code = self.query_one("#module", CodeView)
        if self.subject is not None:
            self.query_one(LineList).show(tuple(step_details(step, self.subject.target)))
        first, last = step.lines or (0, -1)
        code.light_lines(first, last, follow=follow)
