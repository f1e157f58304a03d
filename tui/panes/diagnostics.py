"""Diagnostics and their fixes."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widget import Widget

from aotlens.model.report import Diagnostic, Fix
from aotlens.view.tabs.diagnostics import diagnostic_details, diagnostic_listing
from aotlens.view.tabs.source.marks import all_diagnostics
from tui.keys import bind
from tui.panes.base import Pane, Subject
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable


class DiagnosticsPane(Pane):
    TAB: ClassVar[str] = "diagnostics"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("diagnostics.apply", "a", "apply", ("Apply fix", "Show a fix, and write it to the file."))
    ]
    DEFAULT_CSS = """
    DiagnosticsPane #diagnostic-table { height: 1fr; }
    DiagnosticsPane .detail { height: 60%; }
    """

    class FixWanted(Message):
        """The user wants a fix of a diagnostic."""

        def __init__(self, diagnostic: Diagnostic, fixes: tuple[Fix, ...]) -> None:
            super().__init__()
            self.diagnostic = diagnostic
            self.fixes = fixes

    def compose(self) -> ComposeResult:
        yield VirtualTable(id="diagnostic-table")
        yield LineList(id="diagnostic-detail", classes="detail")

    def fill(self, subject: Subject) -> None:
        self.query_one(VirtualTable).show(diagnostic_listing(subject.report, subject.target))
        self._describe()

    def main(self) -> Widget:
        return self.query_one("#diagnostic-table")

    def reveal(self, key: str) -> None:
        self.query_one(VirtualTable).select(key, notify=True)
        self.main().focus()

    def mark_line(self, file: str, line: int) -> None:
        self.query_one(VirtualTable).mark_line(file, line)
        self._describe()

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if event.sender.id == "diagnostic-table":
            self._describe()

    @property
    def selected(self) -> Diagnostic | None:
        index, subject = self.query_one(VirtualTable).record_index, self.subject
        return (
            None
            if index is None or subject is None
            else all_diagnostics(subject.report, subject.target)[index]
        )

    def action_apply(self) -> None:
        diagnostic = self.selected
        if diagnostic is not None and diagnostic.fixes:
            self.post_message(self.FixWanted(diagnostic, diagnostic.fixes))
        else:
            why = "this diagnostic has no fix" if diagnostic is not None else "there is nothing to fix"
            self.notify(why, severity="warning", markup=False)

    def _describe(self) -> None:
        diagnostic, subject = self.selected, self.subject
        if diagnostic is None or subject is None:
            self.query_one(LineList).show(())
            return
        files = {edit.span.file for fix in diagnostic.fixes for edit in fix.edits}
        texts = {file: subject.sources.get(file) for file in files}
        sources = {file: "\n".join(text.raw) + "\n" for file, text in texts.items() if not text.problem}
        self.query_one(LineList).show(tuple(diagnostic_details(diagnostic, subject.target, sources)))
