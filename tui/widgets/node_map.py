"""The drawing of a node and its neighbours, with a cursor that moves from box to box."""

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from aotlens.view.tabs.drawn_graph.drawing import Drawing, Neighbour
from tui.keys import bind
from tui.widgets.painted import PaintedView

Draw = Callable[[tuple[int, int]], Drawing]
"""Returns the drawing in so many columns and rows."""


class NodeMap(PaintedView):
    """Redraws when its size changes; arrows move between boxes, Enter goes to a neighbour."""

    DEFAULT_CSS = """
    NodeMap { height: 1fr; overflow-x: hidden; padding: 0 1; scrollbar-size-vertical: 1;
        scrollbar-color: $panel; scrollbar-background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("map.left", "left,h", "go(-1, 0)", ("Inputs", "Go to an input of the node.")),
        bind("map.right", "right,l", "go(1, 0)", ("Users", "Go to a user of the node.")),
        bind("map.up", "up,k", "go(0, -1)", ("", "Go to the box above.")),
        bind("map.down", "down,j", "go(0, 1)", ("", "Go to the box below.")),
        bind("map.select", "enter", "walk", ("Select", "Select the node, and show its neighbours.")),
    ]

    selected: reactive[int] = reactive(0)
    """The box under the cursor."""

    class Moved(Message):
        """The cursor moved to a box."""

        def __init__(self, sender: "NodeMap", item: Neighbour) -> None:
            super().__init__()
            self.sender = sender
            self.item = item

        @property
        def control(self) -> "NodeMap":
            return self.sender

    class Walked(Moved):
        """The user wants to go to the node of a box."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.drawing = Drawing()
        self._draw: Draw | None = None
        self._drawn: tuple[int, int] = (-1, -1)

    def show(self, draw: Draw | None) -> None:
        """Show another node; it is drawn once it is visible."""
        self._draw = draw
        self._drawn = (-1, -1)
        if self.scroll_offset.y:
            self.scroll_to(y=0, animate=False, force=True)
        self._lay_out()
        self.refresh()

    def _lay_out(self) -> None:
        size = self.scrollable_content_region.size
        wanted = (size.width, size.height)
        if wanted == self._drawn or not size.width or not size.height:
            return
        self._drawn = wanted
        self.drawing = self._draw(wanted) if self._draw is not None else Drawing()
        self.virtual_size = Size(size.width, len(self.drawing.rows))
        self.set_reactive(NodeMap.selected, self.drawing.centre)

    def on_resize(self) -> None:
        self._lay_out()

    def watch_selected(self) -> None:
        self.refresh()

    @property
    def item(self) -> Neighbour | None:
        boxes = self.drawing.boxes
        return boxes[self.selected].item if self.selected < len(boxes) else None

    def action_go(self, columns: int, rows: int) -> None:
        """Go to the next box; at the edge of the drawing select its node, so that the drawing follows."""
        if not self.drawing.boxes:
            return
        if not columns:
            self._move_to(self.drawing.above(self.selected, rows))
            return
        box = self.drawing.beside(self.selected, columns)
        if box is not None:
            self._move_to(box)
        elif self.item is not None and self.drawing.boxes[self.selected].column * columns > 0:
            self.action_walk()

    def action_walk(self) -> None:
        if self.item is not None:
            self.post_message(self.Walked(self, self.item))

    def on_focus(self) -> None:
        if self.item is not None:
            self.post_message(self.Moved(self, self.item))

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        x, y = offset.x, offset.y + self.scroll_offset.y
        index = next((index for index, box in enumerate(self.drawing.boxes) if box.holds(x, y)), None)
        if index is None:
            return
        event.stop()
        self.focus()
        self._move_to(index)
        if event.chain == 2:
            self.action_walk()

    def _move_to(self, index: int) -> None:
        self.selected = index
        box, top, height = (
            self.drawing.boxes[index],
            self.scroll_offset.y,
            self.scrollable_content_region.height,
        )
        if box.top < top or box.top + box.height > top + height:
            self.scroll_to(y=max(0, box.middle - height // 2), animate=False, force=True)
        self.post_message(self.Moved(self, box.item))

    def render_line(self, y: int) -> Strip:
        self._lay_out()
        number, width = y + self.scroll_offset.y, self.scrollable_content_region.width
        if number >= len(self.drawing.rows):  # also without a node: only a drawing with boxes has rows
            return Strip.blank(width, self._background)
        text = Text(no_wrap=True, end="")
        for part in self.drawing.rows[number]:
            text.append(part.text, self.style_of(f"role--{part.role}") if part.role else None)
        box = self.drawing.boxes[self.selected]
        if box.top <= number < box.top + box.height and (self.has_focus or box.column != 0):
            style = self.style_of("map--cursor" if self.has_focus else "map--resting")
            text.stylize(style, box.left, box.left + box.width)
        strip = Strip(text.render(self.app.console)).adjust_cell_length(width)
        return strip.apply_style(self._background)
