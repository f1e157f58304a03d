"""The screen that shows two reports side by side, line by line."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Static

from aotlens.compare.side_by_side import SideBySide, SideRow, TargetPair
from aotlens.compare.step import step_peak_text
from aotlens.view.tabs.side_by_side import (
    changed_rows,
    pair_summary,
    side_details,
    side_listing,
    side_names,
    step_listing,
    step_peak_lines,
    summary_lines,
)
from tui.keys import bind
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable

KEYS = "a all lines or changed ones · n p next, previous target · Enter details · Esc closes"


class ComparisonScreen(Screen[None]):
    """The lines of both reports, the details of one row below them."""

    DEFAULT_CSS = """
    ComparisonScreen .caption { height: 1; padding: 0 2; }
    ComparisonScreen #side-keys { color: $text-muted; }
    ComparisonScreen #side-table { height: 1fr; }
    ComparisonScreen #side-detail { height: 12; border-top: solid $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("compare.close", "escape,q,x", "close", ("Close", "Go back.")),
        bind("compare.all", "a", "all_lines", ("All lines", "List all lines, or the changed ones.")),
        bind("compare.next", "n", "other(1)", ("Next", "Show the next target.")),
        bind("compare.previous", "p", "other(-1)", ("Previous", "Show the previous target.")),
    ]

    def __init__(self, comparison: SideBySide, qualname: str = "") -> None:
        super().__init__()
        self.comparison = comparison
        names = [pair.qualname for pair in comparison.targets]
        self.selected = names.index(qualname) if qualname in names else 0
        self.shows_all = False
        """True if lines without a difference are listed too."""

    def compose(self) -> ComposeResult:
        yield Static(id="side-title", classes="caption")
        yield VirtualTable(id="side-table")
        yield LineList(id="side-detail")
        yield Static(KEYS, id="side-keys", classes="caption")

    def on_mount(self) -> None:
        self._show()
        self.query_one(VirtualTable).focus()

    @property
    def pair(self) -> TargetPair | None:
        targets = self.comparison.targets
        return targets[self.selected] if targets else None

    @property
    def rows(self) -> tuple[SideRow, ...]:
        if self.pair is None:
            return ()
        return self.pair.rows if self.shows_all else changed_rows(self.pair)

    def _show(self) -> None:
        pair = self.pair
        if pair is None:
            self._show_step()
            return
        number = f" ({self.selected + 1} of {len(self.comparison.targets)})"
        title = Text.assemble((pair.qualname, "bold"), number, f"  {pair_summary(pair)}", no_wrap=True)
        self.query_one("#side-title", Static).update(title)
        self.query_one(VirtualTable).show(side_listing(self.rows, side_names(self.comparison, pair)))
        self._describe()

    def _show_step(self) -> None:
        """Show what changed in the memory of the step, for two reports by `aotlens fit`."""
        step = self.comparison.step
        if step is None:
            self.query_one("#side-title", Static).update("neither report has a target")
            return
        self.query_one("#side-title", Static).update(Text(step_peak_text(step), no_wrap=True))
        self.query_one(VirtualTable).show(step_listing(step.lines))
        self.query_one(LineList).show(tuple(step_peak_lines(step)))

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if event.sender.id == "side-table":
            self._describe()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        self.query_one("#side-detail").focus()

    def _describe(self) -> None:
        """Show the details of the row; without rows, what changed in the target."""
        pair, index = self.pair, self.query_one(VirtualTable).record_index
        if pair is None:
            return
        names = side_names(self.comparison, pair)
        lines = summary_lines(pair, names) if index is None else side_details(self.rows[index], names)
        self.query_one(LineList).show(tuple(lines))

    def action_all_lines(self) -> None:
        self.shows_all = not self.shows_all
        self._show()

    def action_other(self, step: int) -> None:
        if self.comparison.targets:
            self.selected = (self.selected + step) % len(self.comparison.targets)
            self._show()

    def action_close(self) -> None:
        self.dismiss(None)
