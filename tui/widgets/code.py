"""Source text with syntax colours, a gutter and lit ranges, drawn line by line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from aotlens.model.spans import file_key
from aotlens.view.tabs.source.files import SourceText, from_text
from aotlens.view.tabs.source.spans import lines_of
from aotlens.view.tabs.source.syntax import Colouring, plain, python
from aotlens.view.tabs.tables.rows import NO_LINK, Link
from tui.keys import bind
from tui.widgets.painted import PaintedView

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import Span

GutterOf = Callable[[int], tuple[tuple[str, str], ...]]
"""Returns pieces of text with their look for a 1-based line."""

ENOUGH = 12
"""Cells of a lit range that must be in view; more is not worth moving the text sideways."""


class CodeView(PaintedView):
    """One text with a line cursor; linked expressions are underlined as well as coloured."""

    DEFAULT_CSS = """
    CodeView {
        height: 1fr;
        scrollbar-size-vertical: 1;
        scrollbar-size-horizontal: 0;
        scrollbar-color: $panel;
        scrollbar-color-hover: $primary;
        scrollbar-color-active: $primary;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-background-active: $background;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("text.up", "up,k", "move(-1)", ("", "Go up one line.")),
        bind("text.down", "down,j", "move(1)", ("", "Go down one line.")),
        bind("text.page-up", "pageup", "page(-1)", ("", "Go up one page.")),
        bind("text.page-down", "pagedown,space", "page(1)", ("", "Go down one page.")),
        bind("text.first", "home,g", "edge(0)", ("", "Go to the first line.")),
        bind("text.last", "end,G", "edge(1)", ("", "Go to the last line.")),
        bind("text.left", "left,h", "sideways(-8)", ("", "Scroll the text to the left.")),
        bind("text.right", "right,l", "sideways(8)", ("", "Scroll the text to the right.")),
        bind("text.next-match", "n", "find(1)", ("Next match", "Go to the next match.")),
        bind("text.previous-match", "N", "find(-1)", ("", "Go to the previous match.")),
    ]

    cursor: reactive[int] = reactive(1)
    """The 1-based line under the cursor."""

    class Moved(Message):
        """The user moved the cursor to a line."""

        def __init__(self, sender: CodeView, file: str, line: int) -> None:
            super().__init__()
            self.sender = sender
            self.file = file
            self.line = line

        @property
        def control(self) -> CodeView:
            return self.sender

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.text = from_text("")
        self.link = NO_LINK
        self.block = range(0)
        """1-based lines lit as a whole."""
        self.searched = ""
        self.matches: tuple[int, ...] = ()
        """1-based lines that contain the search words."""
        self._colouring: Colouring = plain
        self._gutter: GutterOf | None = None

    # Content.

    def show(self, text: SourceText, *, coloured: bool = True, gutter: GutterOf | None = None) -> None:
        """Replace the text; the cursor stays on its line when the file is the same."""
        same = file_key(text.file) == file_key(self.text.file)
        self.text = text
        self.link = NO_LINK
        self._colouring = python(text.lines) if coloured else plain
        self._gutter = gutter
        self.matches = ()
        self.block = range(0)
        self.virtual_size = Size(self._content_width(), len(text.lines))
        self.set_reactive(CodeView.cursor, min(self.cursor, max(1, len(text.lines))) if same else 1)
        if not same:
            self.scroll_to(x=0, y=0, animate=False, force=True)
        self.refresh()

    def colour(self) -> None:
        """Colour the text as Python."""
        self._colouring = python(self.text.lines)
        self.refresh()

    def light(self, link: Link, *, follow: bool = True) -> None:
        """Light the spans of a link that are in this file; `follow` brings the first into view."""
        if link == self.link and not self.block:
            return
        before, top = self._lit_lines(), self.scroll_offset
        self.link = link
        here = [span for span in (*link.primary, *link.secondary) if self._is_here(span)]
        self.block = range(0)
        if follow and here:
            self.set_reactive(CodeView.cursor, here[0].line)
            self.show_line(here[0].line)
            self._show_columns(here[0])
        if self.scroll_offset != top:
            self.refresh()
            return
        for line in before | self._lit_lines():
            self.refresh_line(line - 1)

    def _lit_lines(self) -> set[int]:
        """Return the cursor's line and the highlighted lines: those that a new link changes."""
        spans = (span for span in (*self.link.primary, *self.link.secondary) if self._is_here(span))
        return {self.cursor, *self.block, *(line for span in spans for line in lines_of(span))}

    def light_lines(self, first: int, last: int, *, follow: bool = True) -> None:
        """Light whole lines, which needs no underline to be seen."""
        self.link = NO_LINK
        self.block = range(first, last + 1)
        if follow and self.block:
            self.set_reactive(CodeView.cursor, first)
            self.show_line(first)
        self.refresh()

    def _show_columns(self, span: Span) -> None:
        """Scroll sideways only as far as shows the span."""
        start, end = self.text.columns(span, span.line)
        room = self.scrollable_content_region.width - self._gutter_text(1).cell_len - 1
        needed = min(end, start + ENOUGH)
        left = 0 if needed <= room else max(0, min(start - 4, end - room))
        if left != self.scroll_offset.x:
            self.scroll_to(x=left, animate=False, force=True)

    def place_cursor(self, line: int) -> None:
        """Put the cursor on a line and bring it into view."""
        self.cursor = max(1, min(len(self.text.lines), line))
        self.show_line(self.cursor)

    def show_line(self, line: int) -> None:
        """Scroll the line to the middle, unless it is well in view."""
        height = self.scrollable_content_region.height
        top = self.scroll_offset.y
        if not top + 1 <= line - 1 < top + height - 2:
            self.scroll_to(y=max(0, line - 1 - height // 2), animate=False, force=True)

    def on_resize(self) -> None:
        """Scroll the cursor's line to the middle: a text may be shown before its size is known."""
        top = max(0, self.cursor - 1 - self.scrollable_content_region.height // 2)
        self.scroll_to(y=top, animate=False, force=True)

    def search(self, words: str) -> None:
        """Highlight the search words and go to their next occurrence."""
        self.searched = words.casefold()
        self.matches = tuple(
            number
            for number, line in enumerate(self.text.lines, 1)
            if self.searched and self.searched in line.casefold()
        )
        if self.matches and self.cursor not in self.matches:
            self.action_find(1)
        self.refresh()

    def _is_here(self, span: Span) -> bool:
        return file_key(span.file) == file_key(self.text.file)

    # Moving.

    def action_move(self, step: int) -> None:
        self._go(self.cursor + step)

    def action_page(self, step: int) -> None:
        self._go(self.cursor + step * max(1, self.scrollable_content_region.height - 1))

    def action_edge(self, end: int) -> None:
        self._go(len(self.text.lines) if end else 1)

    def action_sideways(self, cells: int) -> None:
        self.scroll_to(x=max(0, self.scroll_offset.x + cells), animate=False, force=True)

    def action_find(self, step: int) -> None:
        """Go to the next line that contains the search words, around the end."""
        if not self.matches:
            return
        after = [line for line in self.matches if (line - self.cursor) * step > 0]
        order = after if step > 0 else after[::-1]
        self._go(order[0] if order else self.matches[0 if step > 0 else -1])

    def _go(self, line: int) -> None:
        if not self.text.lines:
            return
        self.cursor = max(1, min(len(self.text.lines), line))
        self._keep_in_view()
        self.post_message(self.Moved(self, self.text.file, self.cursor))

    def _keep_in_view(self) -> None:
        height, top, index = self.scrollable_content_region.height, self.scroll_offset.y, self.cursor - 1
        if index < top:
            self.scroll_to(y=index, animate=False, force=True)
        elif index >= top + height > top:
            self.scroll_to(y=index - height + 1, animate=False, force=True)

    def on_click(self, event: events.Click) -> None:
        line = event.y + self.scroll_offset.y + 1
        if 1 <= line <= len(self.text.lines):
            event.stop()
            self.focus()
            self._go(line)

    def watch_cursor(self, old: int, new: int) -> None:
        self.refresh_line(old - 1)
        self.refresh_line(new - 1)

    # Drawing.

    def _content_width(self) -> int:
        """Return the cells of the longest line with its gutter, which the text can be scrolled by."""
        widest = max((len(line) for line in self.text.lines), default=0)
        return widest + self._gutter_text(1).cell_len + 1

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        number = y + self.scroll_offset.y + 1
        if number > len(self.text.lines):
            return Strip.blank(width, self._background)
        gutter, code = self._gutter_text(number), self._code_text(number)
        row = self._row_style(number)
        room = max(0, width - gutter.cell_len)
        scroll_x = self.scroll_offset.x
        drawn = Strip(code.render(self.app.console)).crop_extend(scroll_x, scroll_x + room, None)
        strip = Strip.join([Strip(gutter.render(self.app.console)), drawn]).adjust_cell_length(width)
        return strip.apply_style(self._background + row)

    def _row_style(self, number: int) -> Style:
        if number != self.cursor:
            return self.style_of("code--block") if number in self.block else Style.null()
        return self.style_of("code--cursor" if self.has_focus else "code--resting")

    def _gutter_text(self, number: int) -> Text:
        digits = max(3, len(str(len(self.text.lines))))
        cursor = "›" if number == self.cursor else " "
        text = Text(f"{cursor}{number:>{digits}} ", self.style_of("code--number"), end="", no_wrap=True)
        for piece, name in self._gutter(number) if self._gutter else ():
            text.append(piece, self.style_of(name) if name else None)
        lit = number in self.block or any(
            self._is_here(span) and number in lines_of(span) for span in self.link.primary
        )
        text.append("▌" if lit else "│", self.style_of("code--edge-lit" if lit else "code--edge"))
        return text.append(" ")

    def _code_text(self, number: int) -> Text:
        line = self.text.lines[number - 1]
        text = Text(line, end="", no_wrap=True)
        for start, end, kind in self._colouring(number, line):
            text.stylize(self.style_of(f"syntax--{kind}"), start, end)
        for spans, name in ((self.link.secondary, "code--related"), (self.link.primary, "code--linked")):
            for span in spans:
                if self._is_here(span) and number in lines_of(span):
                    text.stylize(self.style_of(name), *self.text.columns(span, number))
        if self.searched and self.matches:
            start = line.casefold().find(self.searched)
            while start >= 0:
                text.stylize(self.style_of("code--found"), start, start + len(self.searched))
                start = line.casefold().find(self.searched, start + 1)
        return text
