"""Saved and recomputed values."""

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget

from aotlens.model.report import RecomputedValue, SavedValue
from aotlens.view.reasons import reason_text
from aotlens.view.tabs.saved import (
    by_bytes,
    largest_recomputed,
    opposite,
    recomputed_details,
    recomputed_listing,
    saved_details,
    saved_listing,
    totals,
)
from aotlens.view.tabs.tradeoffs import tradeoff_lines
from tui.messages import WhatIfWanted
from tui.panes.base import Pane, Subject
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable


class SavedPane(Pane):
    TAB: ClassVar[str] = "saved"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "flip", "Alternative"),
        Binding("u", "unfold", "Layers"),
    ]
    DEFAULT_CSS = """
    SavedPane #saved-total { height: 1; }
    SavedPane #saved-table { height: 1fr; }
    SavedPane #recomputed { height: auto; max-height: 6; min-height: 3; border-top: solid $panel; }
    SavedPane #tradeoffs.-empty { display: none; }
    SavedPane .detail { height: 8; }
    SavedPane #tradeoffs { height: auto; max-height: 9; border-top: solid $panel; }
    """

    def compose(self) -> ComposeResult:
        yield LineList(id="saved-total")
        yield VirtualTable(id="saved-table")
        yield VirtualTable(id="recomputed")
        yield LineList(id="tradeoffs")
        yield LineList(id="saved-detail", classes="detail")

    def on_mount(self) -> None:
        self.query_one("#saved-total").can_focus = False

    saved: tuple[SavedValue, ...] = ()
    recomputed: tuple[RecomputedValue, ...] = ()
    """The values of the rows of the two tables."""

    def fill(self, subject: Subject) -> None:
        partition = subject.target.partition
        self.saved = by_bytes(partition.saved) if partition else ()
        self.recomputed = largest_recomputed(partition) if partition else ()
        self.query_one("#saved-total", LineList).show((totals(subject.target),))
        self.query_one("#saved-table", VirtualTable).show(saved_listing(subject.target))
        recomputed = self.query_one("#recomputed", VirtualTable)
        recomputed.show(recomputed_listing(subject.target))
        recomputed.display = partition is not None
        tradeoffs = self.query_one("#tradeoffs", LineList)
        lines = tradeoff_lines(partition) if partition else ()
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
        table.select(key, notify=True)
        table.focus()

    def mark_line(self, file: str, line: int) -> None:
        for table in self.query(VirtualTable):
            table.mark_line(file, line)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if isinstance(event.sender, VirtualTable):
            self.after_paint(partial(self._describe, event.sender))

    def _describe(self, table: VirtualTable) -> None:
        value, subject = self._value(table), self.subject
        if value is None or subject is None:
            return
        if isinstance(value, SavedValue):
            lines = tuple(saved_details(value, subject.target))
        else:
            lines = tuple(recomputed_details(value, subject.target))
        self.query_one("#saved-detail", LineList).show(lines)

    def _value(self, table: VirtualTable) -> SavedValue | RecomputedValue | None:
        """Return the value under the cursor of a table; of a fold, the first."""
        return next(iter(self._values(table)), None)

    def _values(self, table: VirtualTable) -> tuple[SavedValue | RecomputedValue, ...]:
        """Return the values of the row under the cursor: several where identical layers fold."""
        records = self.saved if table.id == "saved-table" else self.recomputed
        return tuple(records[index] for index in table.record_indices)

    # What if.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.can_trace or self.is_log if action == "flip" else True

    def action_flip(self) -> None:
        """Ask for the cost of recomputing a saved value, or of saving a recomputed one."""
        again = self.query_one("#recomputed", VirtualTable)
        values = self._values(again if again.has_focus else self.query_one("#saved-table", VirtualTable))
        changes = [change for value in values if (change := opposite(value)) is not None]
        if changes:
            self.post_message(WhatIfWanted(",".join(changes)))
        elif values:
            fixed = f"{values[0].node} cannot be changed: {reason_text(values[0])}"
            self.notify(fixed, severity="warning", markup=False)
