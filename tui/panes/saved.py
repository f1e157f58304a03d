"""Saved and recomputed values."""

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widget import Widget

from aotlens.model.report import RecomputedValue, SavedValue, WhatIf
from aotlens.view.partition.reasons import reason_text
from aotlens.view.partition.selection import change_of, opposite
from aotlens.view.tabs.saved import (
    by_bytes,
    largest_recomputed,
    recomputed_details,
    recomputed_listing,
    saved_details,
    saved_listing,
    total_line,
)
from aotlens.view.tabs.selection import selection_line
from aotlens.view.tabs.tradeoffs import tradeoff_lines
from tui.keys import bind
from tui.messages import SelectionChanged, SelectionWriteWanted, WhatIfWanted
from tui.panes.base import Pane, Subject
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable


class SavedPane(Pane):
    TAB: ClassVar[str] = "saved"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("saved.flip", "f", "flip", ("Alternative", "Show what the other decision would cost.")),
        bind("saved.select", "m", "select", ("Select", "Select the value to try it with others.")),
        bind("saved.clear", "c", "clear", ("Clear selection", "Select no value.")),
        bind("saved.write", "p", "write", ("Write selection", "Write the selected changes to a file.")),
        bind("saved.unfold", "u", "unfold", ("Layers", "Show or fold identical layers.")),
    ]
    DEFAULT_CSS = """
    SavedPane #saved-total { height: 1; }
    SavedPane #selection { height: auto; max-height: 3; display: none; }
    SavedPane.-selecting #selection { display: block; }
    SavedPane #saved-table { height: 1fr; }
    SavedPane #recomputed { height: auto; max-height: 6; min-height: 3; border-top: solid $panel; }
    SavedPane #tradeoffs.-empty { display: none; }
    SavedPane .detail { height: 8; }
    SavedPane #tradeoffs { height: auto; max-height: 9; border-top: solid $panel; }
    """

    def compose(self) -> ComposeResult:
        yield LineList(id="saved-total")
        yield LineList(id="selection")
        yield VirtualTable(id="saved-table")
        yield VirtualTable(id="recomputed")
        yield LineList(id="tradeoffs")
        yield LineList(id="saved-detail", classes="detail")

    def on_mount(self) -> None:
        self.query_one("#saved-total").can_focus = False
        self.query_one("#selection").can_focus = False

    saved: tuple[SavedValue, ...] = ()
    recomputed: tuple[RecomputedValue, ...] = ()
    """The values of the rows of the two tables."""
    selected: frozenset[str] = frozenset()
    """The nodes of the values that the user has selected to decide the other way."""
    answer: WhatIf | None = None
    """The totals with the selection; None while they are computed."""

    def fill(self, subject: Subject) -> None:
        partition = subject.target.partition
        self.saved = by_bytes(partition.saved) if partition else ()
        self.recomputed = largest_recomputed(partition) if partition else ()
        self.query_one("#saved-total", LineList).show((total_line(subject.target),))
        self.query_one("#saved-table", VirtualTable).show(saved_listing(subject.target))
        recomputed = self.query_one("#recomputed", VirtualTable)
        recomputed.show(recomputed_listing(subject.target))
        recomputed.display = partition is not None
        tradeoffs = self.query_one("#tradeoffs", LineList)
        lines = tradeoff_lines(partition) if partition else ()
        tradeoffs.show(lines)
        tradeoffs.set_class(not lines, "-empty")
        self.query_one("#saved-detail", LineList).show(())
        self._keep_selection()
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
        records = self._records(table)
        return tuple(records[index] for index in table.record_indices)

    def _records(self, table: VirtualTable) -> tuple[SavedValue | RecomputedValue, ...]:
        """Return the values of the rows of a table."""
        return self.saved if table.id == "saved-table" else self.recomputed

    # What if.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("select", "clear", "write"):
            return self.can_trace and (action == "select" or bool(self.selected))
        return self.can_trace or self.is_log if action == "flip" else True

    def action_flip(self) -> None:
        """Ask for the cost of recomputing a saved value, or of saving a recomputed one."""
        changes = [change for value in self._changeable() if (change := opposite(value)) is not None]
        if changes:
            self.post_message(WhatIfWanted(",".join(changes)))

    def _changeable(self) -> tuple[SavedValue | RecomputedValue, ...]:
        """Return the values of the row that can be decided the other way; report why if none can."""
        recomputed = self.query_one("#recomputed", VirtualTable)
        table = recomputed if recomputed.has_focus else self.query_one("#saved-table", VirtualTable)
        values = self._values(table)
        changeable = tuple(value for value in values if opposite(value) is not None)
        if values and not changeable:
            fixed = f"{values[0].node} cannot be changed: {reason_text(values[0])}"
            self.notify(fixed, severity="warning", markup=False)
        return changeable

    # The selection.

    def action_select(self) -> None:
        """Select the values of the row to decide them the other way, or remove them from the selection."""
        nodes = frozenset(value.node for value in self._changeable())
        if nodes:
            self._select(self.selected - nodes if nodes <= self.selected else self.selected | nodes)

    def action_clear(self) -> None:
        """Select nothing."""
        self._select(frozenset())

    def action_write(self) -> None:
        """Write the selection to a file, once its totals are known."""
        if self.answer is None:
            self.notify("the totals are still being computed", timeout=2)
        else:
            self.post_message(SelectionWriteWanted(self.selected, self.answer))

    def show_answer(self, answer: WhatIf | None, problem: str = "") -> None:
        """Show the totals with the selection, or why there are none."""
        self.answer = answer
        self.query_one("#selection", LineList).show((selection_line(len(self.selected), answer, problem),))

    def _select(self, nodes: frozenset[str]) -> None:
        """Show another selection, and ask for its totals."""
        self.selected = nodes
        self._show_selection()
        partition = self.subject.target.partition if self.subject is not None else None
        self.post_message(SelectionChanged(change_of(partition, nodes) if partition and nodes else ""))
        self.refresh_bindings()

    def _keep_selection(self) -> None:
        """Keep the selected values that this target has too, and ask for the totals there."""
        if self.selected:
            nodes = {*(value.node for value in self.saved), *(value.node for value in self.recomputed)}
            self._select(self.selected & nodes)

    def _show_selection(self) -> None:
        self.set_class(bool(self.selected), "-selecting")
        self.show_answer(None)
        for table in self.query(VirtualTable):
            rows = enumerate(self._records(table))
            table.select_records(frozenset(index for index, value in rows if value.node in self.selected))
