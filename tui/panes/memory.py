"""Live memory: the curve as a plot, the values alive at the peak, and every node with the bytes alive
then."""

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widget import Widget

from aotlens.model.report import LiveValue
from aotlens.view.tabs.memory import (
    PLOT_HEIGHT,
    alive_details,
    alive_listing,
    by_size,
    curve_details,
    curve_listing,
    curve_plot,
    memory_total,
    peak_row,
)
from tui.keys import bind
from tui.panes.base import Pane, Subject
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable

MARGIN = 4
"""Cells of the pane that the plot leaves free."""

LOW_FROM, LOW_HEIGHT, HIGH_FROM = 16, 3, 26
"""From the first height of the pane on there is a low plot, of the second height; from the third on, a high
one."""


class MemoryPane(Pane):
    TAB: ClassVar[str] = "memory"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("memory.peak", "p", "peak", ("Peak", "Go to the node where memory peaks.")),
        bind("memory.unfold", "u", "unfold", ("Layers", "Show or fold identical layers.")),
    ]
    DEFAULT_CSS = """
    MemoryPane #memory-total { height: 1; }
    MemoryPane #memory-plot { height: auto; max-height: 12; }
    MemoryPane .detail { height: 7; }
    MemoryPane #alive { height: 3fr; border-top: solid $panel; }
    MemoryPane #curve { height: 2fr; border-top: solid $panel; }
    """

    alive: tuple[LiveValue, ...] = ()
    """The values of the upper table's rows."""

    def compose(self) -> ComposeResult:
        yield LineList(id="memory-total")
        yield LineList(id="memory-plot")
        yield VirtualTable(id="alive")
        yield VirtualTable(id="curve")
        yield LineList(id="memory-detail", classes="detail")

    def on_mount(self) -> None:
        self.query_one("#memory-total").can_focus = False
        self.query_one("#memory-plot").can_focus = False

    def on_resize(self) -> None:
        self._draw()

    def fill(self, subject: Subject) -> None:
        self.query_one("#memory-total", LineList).show((memory_total(subject.target),))
        curve = self.query_one("#curve", VirtualTable)
        curve.show(curve_listing(subject.target))
        peak = peak_row(subject.target.memory) if subject.target.memory else None
        if peak is not None and not curve.cursor:
            curve.select_index_or_fold(peak)
            curve.centre()
        self.query_one("#alive", VirtualTable).show(alive_listing(subject.target))
        self.alive = by_size(subject.target.memory)
        self._draw()
        self._describe(self.query_one("#alive", VirtualTable))

    def main(self) -> Widget:
        return self.query_one("#alive")

    def reveal(self, key: str) -> None:
        table = self.query_one("#alive" if key.startswith("alive:") else "#curve", VirtualTable)
        table.select(key, notify=True)
        table.focus()

    def mark_line(self, file: str, line: int) -> None:
        for table in self.query(VirtualTable):
            table.mark_line(file, line)

    def action_peak(self) -> None:
        """To the row of the curve where memory peaks."""
        memory = self.subject.target.memory if self.subject else None
        index = peak_row(memory) if memory else None
        if index is not None:
            table = self.query_one("#curve", VirtualTable)
            table.select_index(index, notify=True)
            table.focus()

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if isinstance(event.sender, VirtualTable):
            self.after_paint(partial(self._select_row, event.sender))

    def _select_row(self, table: VirtualTable) -> None:
        if table.id == "curve":
            self._draw()
        self._describe(table)

    def _draw(self) -> None:
        """Draw the plot, with a mark at the curve's row under the cursor."""
        if self.subject is None:
            return
        selected = self.query_one("#curve", VirtualTable).record_index
        width = max(30, self.size.width - MARGIN)
        plot = self.query_one("#memory-plot", LineList)
        # The tables come first: on a small screen the plot is low, or is there once the pane is zoomed.
        plot.display = self.size.height >= LOW_FROM
        height = PLOT_HEIGHT if self.size.height >= HIGH_FROM else LOW_HEIGHT
        plot.show(tuple(curve_plot(self.subject.target, width, selected, height)))

    def _describe(self, table: VirtualTable) -> None:
        index, subject = table.record_index, self.subject
        if index is None or subject is None:
            return
        target = subject.target
        if table.id == "alive":
            lines = tuple(alive_details(self.alive[index], target))
        else:
            lines = tuple(curve_details(target, index, table.listing.rows.link(index)))
        self.query_one("#memory-detail", LineList).show(lines)
