"""The tabs in their order: a new one is one file and one line here.

Invariant: importing this module loads no pane; the app loads them after its first paint.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the panes load the report's records
    from tui.panes.base import Pane

__all__ = ["CHOICES", "FIT_TAB", "KERNELS_TAB", "KEYS", "LOG_KEY", "TABS", "TAB_KEYS", "Tab"]


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab before its pane is loaded."""

    name: str
    """Its name in jumps, the pane's id, and the module of its pane."""
    label: str
    short: str
    """The label where there is little room."""

    def pane_class(self) -> "type[Pane]":
        """Load the pane."""
        module = import_module(f"tui.panes.{self.name}")
        kind: type[Pane] = getattr(module, f"{self.name.capitalize()}Pane")
        return kind


TABS = (
    Tab("overview", "Overview", "Over"),
    Tab("ledger", "In/out", "I/O"),
    Tab("stages", "Stages", "Stag"),
    Tab("graphs", "Graph", "Grph"),
    Tab("saved", "Saved", "Save"),
    Tab("memory", "Memory", "Mem"),
    Tab("wrapper", "Wrapper", "Wrap"),
    Tab("kernels", "Kernels", "Kern"),
    Tab("diagnostics", "Diagnostics", "Diag"),
    Tab("log", "Log", "Log"),
    Tab("why", "Why", "Why"),
    Tab("step", "Fit", "Fit"),
)

KEYS = "1234567890wF"
"""Of the tabs, in their order."""

CHOICES = tuple((key, tab.label, tab.short) for key, tab in zip(KEYS, TABS, strict=True))

TAB_KEYS = "1 … 9 0 w F"
"""The keys of all tabs, as the help shows them."""

_NAMES = [tab.name for tab in TABS]

FIT_TAB, KERNELS_TAB = _NAMES.index("step"), _NAMES.index("kernels")

LOG_KEY = KEYS[_NAMES.index("log")]
