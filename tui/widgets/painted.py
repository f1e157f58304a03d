"""The base of the widgets that draw their own lines: lists, texts and the drawing of a node.

Invariant: the looks of the theme and the background are computed at most once per paint, never per line, so
the cost of a paint is that of its visible lines.
"""

from rich.style import Style
from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.widgets.theme import look_style


class PaintedView(ScrollView, can_focus=True):
    """A scrolling widget that subclasses paint line by line."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._looks: dict[str, Style] = {}
        """The looks that were used, by name; cleared when the styles change, as with another theme."""
        self._background = Style.null()
        """The background of each line of one paint."""

    def notify_style_update(self) -> None:
        self._looks.clear()
        super().notify_style_update()

    def style_of(self, look: str) -> Style:
        """Return the style of a look of the theme."""
        if look not in self._looks:
            self._looks[look] = look_style(self, look)
        return self._looks[look]

    def render_lines(self, crop: Region) -> list[Strip]:
        self._background = self.rich_style  # walks up all parents
        return super().render_lines(crop)
