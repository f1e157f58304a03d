"""Two panes with a border between them that the mouse drags and keys move.

Invariant: each pane keeps at least `LEAST` of the room, and the default layout of the style sheet stays until
the user moves the border.
"""

from collections.abc import Mapping
from typing import Literal

from textual import events
from textual.containers import Container
from textual.css.scalar import Scalar
from textual.message import Message
from textual.widget import Widget

from aotlens.view.quantities import percent

LEAST, MOST = 15, 85
"""Percent of the room that the first pane has."""
STEP = 4
"""Percent that one key press moves the border."""

Layout = Literal["beside", "stacked"]


class Split(Container):
    """The first child beside the second one, or above it on a narrow screen."""

    class Moved(Message):
        """The user moved the border."""

        def __init__(self, layout: Layout, percent: int) -> None:
            super().__init__()
            self.layout = layout
            self.percent = percent
            """The first pane's part."""

    def __init__(self, *children: Widget, shares: Mapping[Layout, int], id: str | None = None) -> None:
        super().__init__(*children, id=id)
        self.shares: dict[Layout, int] = dict(shares)
        """Percent that the user gave to the first pane; a layout without an entry has its default."""
        self.stacked = False
        self._dragging = False
        self._applied: tuple[bool, int | None] = (False, None)
        """The layout and the share that the styles have."""

    @property
    def layout_name(self) -> Layout:
        return "stacked" if self.stacked else "beside"

    def on_resize(self) -> None:
        # Not in the screen's handler: what it posts keeps two resizes apart, which then alternate forever.
        self.lay_out()

    def lay_out(self) -> None:
        """Apply the user's share for this layout, unless only one of the panes is visible."""
        screen = self.screen
        stacked = screen.has_class("-narrow")
        alone = screen.has_class("-only-left") or screen.has_class("-only-right")
        self.stacked = stacked
        share = None if alone else self.shares.get(self.layout_name)
        if (stacked, share) == self._applied:  # each change lays out the screen again
            return
        self._applied = (stacked, share)
        first = self.children[0]
        for rule in ("width", "height"):
            first.styles.clear_rule(rule)
        if share is not None:
            setattr(first.styles, "height" if stacked else "width", Scalar.parse(percent(share / 100)))

    def move_to(self, share: int) -> None:
        """Give the first pane so many percent."""
        share = max(LEAST, min(MOST, share))
        if self.shares.get(self.layout_name) == share:
            return
        self.shares[self.layout_name] = share
        self.lay_out()
        self.post_message(self.Moved(self.layout_name, share))

    def move_by(self, steps: int) -> None:
        self.move_to(self._percent(self._first_size) + steps * STEP)

    @property
    def _first_size(self) -> int:
        size = self.children[0].outer_size
        return size.height if self.stacked else size.width

    def _percent(self, cells: int) -> int:
        whole = self.size.height if self.stacked else self.size.width
        return round(100 * cells / max(1, whole))

    # The mouse.

    def _is_border(self, event: events.MouseEvent) -> bool:
        """Return True for the cells between the panes: the borders of both, or the line of the second one."""
        second = self.children[1].region
        if not (self.children[0].display and self.children[1].display):
            return False
        if self.stacked:
            return event.screen_y == second.y
        return event.screen_x in (second.x - 1, second.x)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if self._is_border(event):
            event.stop()
            self._dragging = True
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragging:
            event.stop()
            cells = event.screen_y - self.region.y if self.stacked else event.screen_x - self.region.x
            self.move_to(self._percent(cells))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._dragging:
            event.stop()
            self._dragging = False
            self.release_mouse()
            self.screen.clear_selection()


def layouts(shares: Mapping[str, int]) -> dict[Layout, int]:
    """Return the shares of the layouts that exist."""
    names: tuple[Layout, ...] = ("beside", "stacked")
    return {name: shares[name] for name in names if name in shares}
