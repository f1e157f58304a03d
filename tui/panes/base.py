"""The base of every tab."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget

from aotlens.view.tabs.source.files import SourceStore
from aotlens.view.tabs.tables.rows import Line, Link
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import Report, Target


@dataclass(frozen=True, slots=True)
class Subject:
    """The content of all tabs."""

    report: Report
    target: Target
    sources: SourceStore
    changed: tuple[Line, ...] = ()
    """The differences from the trace before."""
    output: str = ""
    """The output of the user's code during the trace."""
    can_trace: bool = False
    """True if the compiler can be asked; False for a saved report."""


class Pane(Vertical):
    """One tab. It is filled when it is first opened."""

    TAB: ClassVar[str]
    """Its name in jumps."""

    DEFAULT_CSS = """
    Pane { height: 1fr; }
    Pane .caption { height: 1; padding: 0 0 0 2; color: $text-muted; }
    Pane .detail { height: 9; border-top: solid $panel; overflow-y: scroll; }
    """

    class Lit(Message):
        """The pane has selected source."""

        def __init__(self, link: Link) -> None:
            super().__init__()
            self.link = link

    subject: Subject | None = None
    _pending: Callable[[], None] | None = None
    """The function that runs after the next paint."""

    @property
    def can_trace(self) -> bool:
        return self.subject is not None and self.subject.can_trace

    @property
    def is_log(self) -> bool:
        """Return True if the target comes from a log of torch.compile."""
        return self.subject is not None and self.subject.target.frontend == "trace"

    def show(self, subject: Subject) -> None:
        """Fill the tab, unless it already shows this subject."""
        if self.subject is subject:
            return
        self.subject = subject
        self.fill(subject)
        gc.freeze()  # as for the report itself: lookup tables stay alive

    def after_paint(self, act: Callable[[], None]) -> None:
        """Call `act` after the next paint: the row that a key moves to is drawn first, then its details.

        Of several calls before it only the last one runs, so a key that is held down draws once.
        """
        waits, self._pending = self._pending is not None, act
        if not waits:
            self.call_after_refresh(self._run_pending)

    def _run_pending(self) -> None:
        act, self._pending = self._pending, None
        if act is not None:
            act()

    def fill(self, subject: Subject) -> None:
        raise NotImplementedError

    def main(self) -> Widget:
        """Return the widget that gets the focus when the tab is opened."""
        raise NotImplementedError

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Go to the details of the row on Enter; Enter leads on from there."""
        detail = self.query(".detail")
        if isinstance(event.sender, VirtualTable) and detail:
            event.stop()
            detail.first().focus()

    def action_unfold(self) -> None:
        """Between identical layers as one row and each by itself."""
        tables = [table for table in self.query(VirtualTable) if table.folds]
        unfolded = any(not table.unfolded for table in tables)
        for table in self.query(VirtualTable):
            table.unfold(unfolded)
        if not tables:
            self.app.bell()

    def reveal(self, key: str) -> None:
        """Put the cursor on the row of that key."""

    def mark_line(self, file: str, line: int) -> None:
        """Mark the rows that belong to a line of the source."""
