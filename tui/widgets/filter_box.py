"""The filter below the tabs: it leaves the rows that match, or searches in a text."""

from __future__ import annotations

from textual.message import Message
from textual.widgets import Input

from tui.widgets.code import CodeView
from tui.widgets.lines import LineList
from tui.widgets.table import VirtualTable

FIND_ALL = "/"
"""Typed into the empty filter, it searches everywhere."""

Searchable = VirtualTable | LineList | CodeView


class FilterBox(Input):
    """One line of words that act on another widget while they are typed."""

    DEFAULT_CSS = """
    FilterBox { display: none; height: 1; border: none; padding: 0 1; background: $panel; }
    FilterBox.-open { display: block; }
    """

    class FindWanted(Message):
        """The user wants to search everywhere."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, placeholder="filter", compact=True)
        self.can_focus = False
        self.searched: Searchable | None = None
        """The widget that the words act on; None once it shows everything again."""

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def begin(self, searched: Searchable | None) -> None:
        """Open the box, empty, for a widget."""
        self.searched = searched
        here = "search here" if isinstance(searched, CodeView) else "filter these rows"
        self.placeholder = f"{here}; {FIND_ALL} once more searches all tabs"
        self.value = ""
        self.can_focus = True
        self.add_class("-open")
        self.screen.set_focus(self)

    def close(self) -> None:
        """Hide the box; what it found stays."""
        self.remove_class("-open")
        self.can_focus = False
        if self.searched is not None:
            self.screen.set_focus(self.searched)

    def clear_search(self) -> bool:
        """Show everything again; return False if nothing is filtered."""
        searched = self.searched
        if searched is None:
            return False
        self.searched = None
        self._apply("", searched)
        if self.is_open:
            self.close()
        self.screen.set_focus(searched)
        return True

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value == FIND_ALL:
            self.close()
            self.post_message(self.FindWanted())
        elif self.searched is not None:
            self._apply(event.value, self.searched)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.close()

    def _apply(self, words: str, searched: Searchable) -> None:
        if isinstance(searched, CodeView):
            searched.search(words)
        else:
            searched.filter(words)
