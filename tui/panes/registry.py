"""The tabs in their order: a new one is one file and one line here."""

from tui.panes.base import Pane
from tui.panes.diagnostics import DiagnosticsPane
from tui.panes.graphs import GraphsPane
from tui.panes.kernels import KernelsPane
from tui.panes.ledger import LedgerPane
from tui.panes.log import LogPane
from tui.panes.memory import MemoryPane
from tui.panes.overview import OverviewPane
from tui.panes.saved import SavedPane
from tui.panes.stages import StagesPane
from tui.panes.step import StepPane
from tui.panes.why import WhyPane
from tui.panes.wrapper import WrapperPane

TABS: tuple[tuple[type[Pane], str, str], ...] = (
    (OverviewPane, "Overview", "Over"),
    (LedgerPane, "In/out", "I/O"),
    (StagesPane, "Stages", "Stag"),
    (GraphsPane, "Graph", "Grph"),
    (SavedPane, "Saved", "Save"),
    (MemoryPane, "Memory", "Mem"),
    (WrapperPane, "Wrapper", "Wrap"),
    (KernelsPane, "Kernels", "Kern"),
    (DiagnosticsPane, "Diagnostics", "Diag"),
    (LogPane, "Log", "Log"),
    (WhyPane, "Why", "Why"),
    (StepPane, "Fit", "Fit"),
)
"""Pane, its label, and the label where there is little room."""

KEYS = "1234567890wF"
"""Of the tabs, in their order."""

CHOICES = tuple((key, label, short) for key, (_, label, short) in zip(KEYS, TABS, strict=True))

TAB_KEYS = "1 … 9 0 w F"
"""The keys of all tabs, as the help shows them."""

KERNELS_TAB = [pane for pane, _, _ in TABS].index(KernelsPane)

LOG_KEY = CHOICES[[pane for pane, _, _ in TABS].index(LogPane)][0]
