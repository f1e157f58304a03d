"""A list of styled lines: the overview, and the details below a table."""

from rich.text import Text
from textual.strip import Strip

from aotlens.view.tabs.tables.rows import Jump, Line, Link
from tui.widgets.row_list import MARKER_WIDTH, RowList

HANGING_INDENT = "     "


class LineList(RowList):
    """Shows `Line`s; the cursor rests only on those that lead somewhere."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.lines: tuple[Line, ...] = ()
        self.query_text = ""
        self._physical: tuple[tuple[Line, Text], ...] = ()
        """The lines as drawn: a wrapped line takes several."""
        self._width = -1

    def show(self, lines: tuple[Line, ...]) -> None:
        """Replace the lines; the cursor stays on its line when their number is the same."""
        row = self.cursor if len(lines) == len(self.lines) else 0
        self.lines = lines
        self.query_text = ""
        self._lay_out()
        self.rows_changed(row)

    def filter(self, query: str) -> None:
        """Keep the lines that hold every word of the query."""
        self.query_text = query
        self._lay_out()
        self.rows_changed(0)

    def on_resize(self) -> None:
        if self._width != self.scrollable_content_region.width:
            self._lay_out()
            self.refresh(layout=self.styles.is_auto_height)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._width = -1
        self.refresh()

    def render_line(self, y: int) -> Strip:
        # A new theme, like a new width, is laid out when it is first drawn: its styles are known only then.
        if self._width != self.scrollable_content_region.width:
            self._lay_out()
        return super().render_line(y)

    def _lay_out(self) -> None:
        self._width = self.scrollable_content_region.width
        width = max(12, self._width - MARKER_WIDTH)
        drawn: list[tuple[Line, Text]] = []
        words = self.query_text.casefold().split()
        for line in (line for line in self.lines if all(word in line.text.casefold() for word in words)):
            text = self.part_text(*line.parts)
            drawn += [(line, piece) for piece in (self._wrapped(text, width) if line.wrap else [text])]
        here = self._physical[self.cursor][0] if self.cursor < len(self._physical) else None
        self._physical = tuple(drawn)
        same = next((index for index, (line, _) in enumerate(drawn) if line is here), 0)
        self.set_reactive(LineList.cursor, same)

    def _wrapped(self, text: Text, width: int) -> list[Text]:
        if text.cell_len <= width:
            return [text]
        text.no_wrap = False
        first, *rest = text.wrap(self.app.console, width)
        if not rest:
            return [first]
        again = Text(" ", end="").join(_stripped(piece) for piece in rest)
        again.no_wrap = False
        return [
            first,
            *(
                Text(HANGING_INDENT, end="") + piece
                for piece in again.wrap(self.app.console, width - len(HANGING_INDENT))
            ),
        ]

    # What the base asks for.

    @property
    def row_count(self) -> int:
        return len(self._physical)

    def can_rest(self, index: int) -> bool:
        line = self._physical[index][0]
        starts = index == 0 or self._physical[index - 1][0] is not line
        return starts and (line.jump is not None or line.link != Link())

    def empty_text(self) -> str:
        return f"no line matches {self.query_text!r}" if self.query_text else ""

    def row_text(self, index: int, width: int) -> Text:
        return self._physical[index][1].copy()

    def row_link(self, index: int) -> Link:
        return self._physical[index][0].link

    def row_jump(self, index: int) -> Jump | None:
        return self._physical[index][0].jump

    def row_copy(self, index: int) -> str:
        return self._physical[index][0].text.strip()


def _stripped(piece: Text) -> Text:
    """Return a line without the blanks at which it was broken."""
    piece.rstrip()
    return piece
