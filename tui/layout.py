"""The parts of the one screen, and where they are: by its size, the border, and what the user zoomed.

Invariant: nothing here knows what a part shows.
"""

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import ContentSwitcher

from aotlens.view.tabs.source.files import SourceStore
from tui.panes.source import SourcePane
from tui.panes.waiting import FailurePane, ProgressPane
from tui.widgets.bars import ChoiceBar, TitleBar
from tui.widgets.filter_box import FilterBox
from tui.widgets.key_bar import KeyBar
from tui.widgets.split import Layout, Split
from tui.widgets.table import VirtualTable

WORKBENCH_CSS = """
    Workbench { background: $background; }
    #tabs { padding: 0 1; }
    #body { layout: horizontal; height: 1fr; }
    #left { width: 46%; }
    #results { width: 1fr; height: 1fr; }
    #targets { height: auto; max-height: 9; border: round $panel; border-title-color: $text-muted;
        display: none; }
    #targets.-several { display: block; }
    #source-pane, #results { border: round $panel; border-title-color: $text-muted;
        border-subtitle-color: $text-muted; }
    #source-pane:focus-within, #results:focus-within, #targets:focus {
        border: round $primary; border-title-color: $primary; border-title-style: bold; }
    Workbench.-stale #results > * { opacity: 55%; }
    Workbench.-narrow #body { layout: vertical; }
    Workbench.-narrow #left { width: 100%; height: 36%; }
    Workbench.-narrow #results { width: 100%; height: 1fr; }
    Workbench.-narrow #source-pane, Workbench.-narrow #results, Workbench.-narrow #targets {
        border: none; border-top: solid $panel; }
    Workbench.-narrow #source-pane:focus-within, Workbench.-narrow #results:focus-within,
    Workbench.-narrow #targets:focus { border: none; border-top: solid $primary; }
    Workbench.-narrow #targets { display: none; }
    Workbench.-narrow #targets.-wanted { display: block; max-height: 6; }
    Workbench.-narrow.-short #left { height: 6; }
    Workbench.-short Pane .detail { height: 5; }
    Workbench.-short #tradeoffs { display: none; }
    Workbench.-short.-narrow #recomputed { max-height: 3; }
    Workbench.-short.-narrow Pane .detail { height: 4; }
    Workbench.-short.-narrow KernelsPane .detail { height: 7; }
    Workbench.-short StagesPane .detail { height: 6; }
    Workbench.-short GraphsPane #map { height: 6; }
    Workbench.-short GraphsPane .detail { display: none; }
    Workbench.-short GraphsPane.-map #tables { display: none; }
    Workbench.-short GraphsPane.-map #map { height: 1fr; }
    Workbench.-short DiagnosticsPane .detail { height: 60%; }
    Workbench.-only-left #results, Workbench.-only-right #left { display: none; }
    Workbench.-only-left #left { width: 100%; height: 100%; }
"""


class WorkbenchLayout(Screen[object]):
    """Source on the left, tabs on the right; below each other where the terminal is narrow."""

    def __init__(self, sources: SourceStore) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]
        self.sources = sources
        self.shares: Mapping[Layout, int] = {}
        """Percent of the source's part, where the user chose it."""

    def compose(self) -> ComposeResult:
        yield TitleBar(id="title")
        yield ChoiceBar(id="tabs")
        with Split(shares=self.shares, id="body"):
            with Vertical(id="left"):
                yield VirtualTable(id="targets")
                yield SourcePane(self.sources, id="source-pane")
            with ContentSwitcher(initial="progress", id="results"):
                yield ProgressPane(id="progress")
                yield FailurePane(id="failure")
        yield FilterBox(id="filter")
        yield KeyBar(id="keys")

    @property
    def source(self) -> SourcePane:
        return self.query_one("#source-pane", SourcePane)

    @property
    def targets(self) -> VirtualTable:
        return self.query_one("#targets", VirtualTable)

    @property
    def results(self) -> ContentSwitcher:
        """Return what holds the tabs, and what is shown instead of them."""
        return self.query_one("#results", ContentSwitcher)

    @property
    def is_whole(self) -> bool:
        """Return True if all of its parts exist: not while the screen is mounted or removed."""
        parts = (TitleBar, ContentSwitcher, ProgressPane)
        return self.is_attached and all(self.query(part) for part in parts)

    def action_targets(self) -> None:
        """Go to the list of targets, which a narrow screen shows only while it is used."""
        if self.targets.has_class("-several"):
            self.targets.add_class("-wanted")
            self.call_after_refresh(self.targets.focus)
        else:
            self.notify("there is only one target", timeout=2)

    def action_zoom(self) -> None:
        """Fill the screen with the focused half; pressed again, show both."""
        if self.has_class("-only-left") or self.has_class("-only-right"):
            self.remove_class("-only-left", "-only-right")
        else:
            left = self.focused is not None and self.focused in self.query("#left *")
            self.add_class("-only-left" if left else "-only-right")
        self.lay_out()

    def action_split(self, steps: int) -> None:
        """Move the border between source and facts, and show both if one of them filled the screen."""
        self.remove_class("-only-left", "-only-right")
        self.lay_out()
        self.query_one(Split).move_by(steps)

    def lay_out(self) -> None:
        """Share the room out anew, after a half was hidden or shown."""
        if self.is_whole:
            self.query_one(Split).lay_out()
