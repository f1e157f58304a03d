"""Saved and recomputed values."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from tui.panes.base import Pane, Subject
from tui.view.saved import (
    by_bytes,
    recomputed_details,
    recomputed_listing,
    saved_details,
    saved_listing,
    totals,
)
from tui.view.tradeoffs import tradeoff_lines
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable


class SavedPane(Pane):
    TAB: ClassVar[str] = "saved"
    DEFAULT_CSS = """
    SavedPane #saved-total { height: 1; }
    SavedPane #saved-table { height: 1fr; }
    SavedPane #recomputed { height: auto; max-height: 30%; min-height: 3; border-top: solid $panel; }
    SavedPane #tradeoffs.-empty { display: none; }
    SavedPane #tradeoffs { height: auto; max-height: 30%; border-top: solid $panel; }
    """

    def compose(self) -> ComposeResult:
        yield LineList(id="saved-total")
        yield VirtualTable(id="saved-table")
        yield VirtualTable(id="recomputed")
        yield LineList(id="tradeoffs")
        yield LineList(id="saved-detail", classes="detail")

    def on_mount(self) -> None:
        self.query_one("#saved-total").can_focus = False

    def fill(self, subject: Subject) -> None:
        self.query_one("#saved-total", LineList).show((totals(subject.target),))
        self.query_one("#saved-table", VirtualTable).show(saved_listing(subject.target))
        recomputed = self.query_one("#recomputed", VirtualTable)
        recomputed.show(recomputed_listing(subject.target))
        recomputed.display = subject.target.partition is not None
        tradeoffs = self.query_one("#tradeoffs", LineList)
        lines = tradeoff_lines(subject.target.partition) if subject.target.partition else ()
        tradeoffs.show(lines)
        tradeoffs.set_class(not lines, "-empty")
        self.query_one("#saved-detail", LineList).show(())
        self._describe(self.query_one("#saved-table", VirtualTable))

    def main(self) -> Widget:
        return self.query_one("#saved-table")

    def reveal(self, key: str) -> None:
        table = self.query_one(
            "#recomputed" if key.startswith("recomputed:") else "#saved-table", VirtualTable
        )
        table.select(key, tell=True)
        table.focus()

    def mark_line(self, file: str, line: int) -> None:
        for table in self.query(VirtualTable):
            table.mark_line(file, line)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if isinstance(event.sender, VirtualTable):
            self._describe(event.sender)

    def _describe(self, table: VirtualTable) -> None:
        index, subject = table.record_index, self.subject
        if index is None or subject is None or subject.target.partition is None:
            return
        partition = subject.target.partition
        if table.id == "saved-table":
            lines = tuple(saved_details(by_bytes(partition)[index], subject.target))
        else:
            value = sorted(partition.recomputed, key=lambda item: -item.bytes)[index]
            lines = tuple(recomputed_details(value, subject.target))
        self.query_one("#saved-detail", LineList).show(lines)
