"""The tabs in their order: a new one is one file and one line here.

Invariant: importing this module loads no pane; the app loads them after its first paint.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the panes load the report's records
    from tui.panes.base import Pane

__all__ = ["CHOICES", "FIT_TAB", "KERNELS_TAB", "LOG_KEY", "TABS", "TAB_KEYS", "Tab"]


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab before its pane is loaded."""

    name: str
    """Its name in jumps, the pane's id, and the module of its pane."""
    label: str
    short: str
    """The label where there is little room."""
    key: str
    """Opens it; no pane and no widget has a binding of this key."""

    def pane_class(self) -> "type[Pane]":
        """Load the pane."""
        module = import_module(f"tui.panes.{self.name}")
        kind: type[Pane] = getattr(module, f"{self.name.capitalize()}Pane")
        return kind


TABS = (
    Tab("overview", "Overview", "Over", "1"),
    Tab("ledger", "In/out", "I/O", "2"),
    Tab("stages", "Stages", "Stag", "3"),
    Tab("graphs", "Graph", "Grph", "4"),
    Tab("saved", "Saved", "Save", "5"),
    Tab("memory", "Memory", "Mem", "6"),
    Tab("wrapper", "Wrapper", "Wrap", "7"),
    Tab("kernels", "Kernels", "Kern", "8"),
    Tab("diagnostics", "Diagnostics", "Diag", "9"),
    Tab("log", "Log", "Log", "0"),
    Tab("why", "Why", "Why", "w"),
    Tab("step", "Fit", "Fit", "F"),
)

CHOICES = tuple((tab.key, tab.label, tab.short) for tab in TABS)

TAB_KEYS = " ".join(("1 … 9", *(tab.key for tab in TABS if tab.key not in "123456789")))
"""The keys of all tabs, as the help shows them."""

_NAMES = [tab.name for tab in TABS]

FIT_TAB, KERNELS_TAB = _NAMES.index("step"), _NAMES.index("kernels")

LOG_KEY = TABS[_NAMES.index("log")].key
