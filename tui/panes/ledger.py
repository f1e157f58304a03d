"""Inputs and outputs."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widget import Widget

from aotlens.view.tabs.ledger import (
    guard_lines,
    input_details,
    input_listing,
    output_details,
    output_listing,
)
from tui.keys import bind
from tui.panes.base import Pane, Subject
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable


class LedgerPane(Pane):
    TAB: ClassVar[str] = "ledger"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("ledger.unfold", "u", "unfold", ("Layers", "Show or fold identical layers.")),
    ]
    DEFAULT_CSS = """
    LedgerPane #inputs { height: 2fr; }
    LedgerPane #outputs { height: auto; max-height: 35%; min-height: 3; border-top: solid $panel; }
    """

    def compose(self) -> ComposeResult:
        yield VirtualTable(id="inputs")
        yield VirtualTable(id="outputs")
        yield LineList(id="ledger-detail", classes="detail")

    def fill(self, subject: Subject) -> None:
        self.query_one("#inputs", VirtualTable).show(input_listing(subject.target))
        self.query_one("#outputs", VirtualTable).show(output_listing(subject.target))
        self._describe(self.query_one("#inputs", VirtualTable))

    def main(self) -> Widget:
        return self.query_one("#inputs")

    def reveal(self, key: str) -> None:
        table = self.query_one("#outputs" if key.startswith("output:") else "#inputs", VirtualTable)
        table.select(key, notify=True)
        table.focus()

    def mark_line(self, file: str, line: int) -> None:
        for table in self.query(VirtualTable):
            table.mark_line(file, line)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if isinstance(event.sender, VirtualTable):
            self._describe(event.sender)

    def _describe(self, table: VirtualTable) -> None:
        index, subject = table.record_index, self.subject
        if index is None or subject is None:
            return
        target = subject.target
        lines = (
            input_details(target.inputs[index], target)
            if table.id == "inputs"
            else output_details(target.outputs[index], target)
        )
        self.query_one(LineList).show((*lines, *guard_lines(target)))
