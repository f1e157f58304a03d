"""The base of every list and table: a cursor over lines that are drawn only while they are visible.

Invariant: the cost of a key or a scroll depends on the height of the widget, never on the number of rows.
"""

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from aotlens.view.tabs.tables.rows import NO_LINK, Jump, Link, Part
from tui.keys import bind
from tui.widgets.painted import PaintedView

CURSOR, LINKED, NONE = "›", "•", " "
"""The first cell of a row, so that the cursor and the links show without colour."""

MARKER_WIDTH = 2


class RowList(PaintedView):
    """A scrolling list with one cursor; subclasses define the number of rows and their text."""

    DEFAULT_CSS = """
    RowList {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        scrollbar-color: $panel;
        scrollbar-color-hover: $primary;
        scrollbar-color-active: $primary;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-background-active: $background;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("list.up", "up,k", "move(-1)", ("", "Go up one row.")),
        bind("list.down", "down,j", "move(1)", ("", "Go down one row.")),
        bind("list.page-up", "pageup", "page(-1)", ("", "Go up one page.")),
        bind("list.page-down", "pagedown,space", "page(1)", ("", "Go down one page.")),
        bind("list.first", "home,g", "edge(0)", ("", "Go to the first row.")),
        bind("list.last", "end,G", "edge(1)", ("", "Go to the last row.")),
        bind("list.open", "enter", "choose", ("Open", "Open the details of the row.")),
    ]

    cursor: reactive[int] = reactive(0)

    class Moved(Message):
        """The user moved the cursor to a row."""

        def __init__(self, sender: "RowList", index: int) -> None:
            super().__init__()
            self.sender = sender
            self.link = sender.row_link(index)
            self.jump = sender.row_jump(index)
            # Read now: the rows may be replaced before the message is handled.

        @property
        def control(self) -> "RowList":
            return self.sender

    class Chosen(Moved):
        """The user pressed Enter on a row, or clicked it twice."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.linked: frozenset[int] = frozenset()
        """Rows of the source line under the other cursor."""
        self._height = -1
        """The number of rows at the last layout."""

    # What subclasses give.

    @property
    def row_count(self) -> int:
        return 0

    @property
    def header_height(self) -> int:
        return 0

    def row_text(self, index: int, width: int) -> Text:
        """Return the row without its marker, at most `width` cells."""
        raise NotImplementedError

    def header_text(self, width: int) -> Text:
        return Text()

    def empty_text(self) -> str:
        return ""

    def row_link(self, index: int) -> Link:
        return NO_LINK

    def row_jump(self, index: int) -> Jump | None:
        return None

    def row_mark(self, index: int) -> str:
        """Return one character for a row that the user has selected; a space for the others."""
        return NONE

    def row_copy(self, index: int) -> str:
        """Return the text that `y` copies."""
        return self.row_text(index, 10_000).plain.strip()

    def can_rest(self, index: int) -> bool:
        """Return True if the cursor may rest on the row."""
        return True

    # Moving.

    def rows_changed(self, cursor: int = 0) -> None:
        """Call after the rows were replaced."""
        self.linked = frozenset()
        height, self._height = self._height, self.row_count
        self._measure()
        self.set_reactive(RowList.cursor, self._nearest(cursor, 1))
        if self.scroll_offset.y:  # scrolling lays out again, even to the same position
            self.scroll_to(y=0, animate=False, force=True)
        self._show_cursor()
        # Lists of automatic height take the height of their rows; laying out paints the whole screen again.
        self.refresh(layout=self.styles.is_auto_height and height != self.row_count)

    def _measure(self) -> None:
        """Set the scrollable size.

        Textual then lays the whole screen out again, since a scrollbar may appear or disappear. Where its
        room is always reserved (`overflow-y: scroll`), as in lists whose rows change with every key, nothing
        moves.
        """
        size = Size(self.scrollable_content_region.width, self.row_count + self.header_height)
        if self.styles.overflow_y == "scroll" and self.show_vertical_scrollbar:
            self.set_reactive(RowList.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = size.height
        else:
            self.virtual_size = size

    def place_cursor(self, index: int, *, notify: bool = False) -> None:
        """Put the cursor on a row; `notify` posts a message, as if the user had moved it."""
        self.cursor = self._nearest(index, 1)
        self._show_cursor()
        if notify and self.row_count:
            self.post_message(self.Moved(self, self.cursor))

    def mark(self, rows: tuple[int, ...]) -> None:
        """Mark the rows of the source line, and bring the first into view."""
        self.linked = frozenset(rows)
        if rows and self.cursor not in self.linked:
            self.place_cursor(rows[0])
            self.centre()
        self.refresh()

    def centre(self) -> None:
        """Scroll so that rows are seen on both sides of the cursor's, unless they are."""
        top = self.scroll_offset.y
        if not top < self.cursor < top + self._page - 1:
            self.scroll_to(y=max(0, self.cursor - self._page // 3), animate=False, force=True)

    def watch_cursor(self, old: int, new: int) -> None:
        self.refresh_line(old + self.header_height)
        self.refresh_line(new + self.header_height)

    def action_move(self, step: int) -> None:
        self._go(self.cursor + step, step)

    def action_page(self, step: int) -> None:
        self._go(self.cursor + step * max(1, self._page), step)

    def action_edge(self, end: int) -> None:
        self._go(self.row_count - 1 if end else 0, -1 if end else 1)

    def action_choose(self) -> None:
        if self.row_count:
            self.post_message(self.Chosen(self, self.cursor))

    def _go(self, index: int, step: int) -> None:
        if not self.row_count:
            return
        if self.linked:
            self.linked = frozenset()
            self.refresh()
        self.cursor = self._nearest(index, 1 if step > 0 else -1)
        self._show_cursor(step)
        self.post_message(self.Moved(self, self.cursor))

    def _nearest(self, index: int, step: int) -> int:
        """Return the next row in that direction where the cursor may rest, else in the other."""
        index = max(0, min(self.row_count - 1, index))
        for way in (step, -step):
            candidate = index
            while 0 <= candidate < self.row_count:
                if self.can_rest(candidate):
                    return candidate
                candidate += way
        return index

    @property
    def _page(self) -> int:
        return self.scrollable_content_region.height - self.header_height

    def _show_cursor(self, step: int = 0) -> None:
        """Scroll as little as shows the cursor; at the first resting row also show the rows above it."""
        top = self.scroll_offset.y
        if step < 0 and self._nearest(0, 1) == self.cursor:
            top = 0
        elif self.cursor < top:
            top = self.cursor
        elif self.cursor >= top + self._page > top:
            top = self.cursor - self._page + 1
        if top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, force=True)

    def on_focus(self) -> None:
        """Post the cursor's row, since the other panes follow the focused list."""
        if self.row_count and self.can_rest(self.cursor):
            self.post_message(self.Moved(self, self.cursor))

    # Mouse.

    def on_click(self, event: events.Click) -> None:
        index = event.y - self.header_height + self.scroll_offset.y
        if event.y < self.header_height or not 0 <= index < self.row_count or not self.can_rest(index):
            return
        event.stop()
        self.focus()
        self._go(index, 1)
        if event.chain == 2:
            self.action_choose()

    # Drawing.

    def on_resize(self) -> None:
        self._measure()
        self._show_cursor()

    def part_text(self, *parts: Part) -> Text:
        text = Text(no_wrap=True, end="")
        for part in parts:
            text.append(part.text, self.style_of(f"role--{part.role}") if part.role else None)
        return text

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        index = y - self.header_height + self.scroll_offset.y
        if y < self.header_height:
            text, row_style = (
                Text("  ", end="") + self.header_text(width - MARKER_WIDTH),
                self.style_of("list--header"),
            )
        elif index < self.row_count:
            text, row_style = self._row(index, width)
        elif index == 0:
            text, row_style = Text(f"  {self.empty_text()}", self.style_of("role--dim"), end=""), Style.null()
        else:
            return Strip.blank(width, self._background)
        return self._strip(text, row_style, width)

    def _row(self, index: int, width: int) -> tuple[Text, Style]:
        here = self.can_focus and index == self.cursor and self.can_rest(index)
        marker = CURSOR if here else LINKED if index in self.linked else NONE
        style = Style.null()
        if here:
            style = self.style_of("list--cursor" if self.has_focus else "list--resting")
        elif index in self.linked:
            style = self.style_of("list--linked")
        return Text(f"{marker}{self.row_mark(index)}", end="") + self.row_text(
            index, width - MARKER_WIDTH
        ), style

    def _strip(self, text: Text, style: Style, width: int) -> Strip:
        text.truncate(width, overflow="ellipsis")
        strip = Strip(text.render(self.app.console)).adjust_cell_length(width)
        return strip.apply_style(self._background + style)
