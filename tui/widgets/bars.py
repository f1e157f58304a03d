"""One-line bars: title, tabs, stages."""

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from aotlens.view.tabs.tables.rows import Part
from tui.widgets.theme import look_style


class TitleBar(Widget):
    """The subject on the left, the state of the trace on the right."""

    DEFAULT_CSS = """
    TitleBar { height: 1; padding: 0 1; background: $panel; color: $foreground; }
    TitleBar.-failed { background: $error 35%; }
    """

    left: reactive[tuple[Part, ...]] = reactive(())
    right: reactive[tuple[Part, ...]] = reactive(())

    def render(self) -> Text:
        left, right = self._text(self.left), self._text(self.right)
        room = self.content_size.width - right.cell_len
        left.truncate(max(0, room - 2), overflow="ellipsis", pad=False)
        return left + Text(" " * max(1, room - left.cell_len)) + right

    def _text(self, parts: tuple[Part, ...]) -> Text:
        text = Text(no_wrap=True)
        for part in parts:
            text.append(part.text, look_style(self, f"role--{part.role}") if part.role else None)
        return text


class ChoiceBar(Widget):
    """Choices side by side; the current one has coloured brackets and is underlined."""

    DEFAULT_CSS = """
    ChoiceBar { height: 1; }
    """

    current: reactive[int] = reactive(0)

    class Picked(Message):
        """The user clicked a choice."""

        def __init__(self, sender: "ChoiceBar", index: int) -> None:
            super().__init__()
            self.sender = sender
            self.index = index

        @property
        def control(self) -> "ChoiceBar":
            return self.sender

    def __init__(self, separator: str = " ", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.separator = separator
        self.choices: tuple[tuple[str, str, str], ...] = ()
        """Key, full label, short label; the short ones are used when the full ones do not fit."""
        self._ends: list[int] = []

    def show(self, choices: tuple[tuple[str, str, str], ...], current: int) -> None:
        self.choices = choices
        self.current = current
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        offset = event.x
        for index, end in enumerate(self._ends):
            if offset < end:
                self.post_message(self.Picked(self, index))
                return

    def render_line(self, y: int) -> Strip:
        text = Text(no_wrap=True, end="")
        pieces, roomy = self._fitted(self.size.width)
        self._ends = []
        for index, label in enumerate(pieces):
            self._add(text, index, label, " " if roomy else "")
            self._ends.append(text.cell_len)
        text.truncate(self.size.width, overflow="ellipsis")
        strip = Strip(text.render(self.app.console)).adjust_cell_length(self.size.width)
        return strip.apply_style(self.rich_style)

    def _fitted(self, width: int) -> tuple[list[str], bool]:
        """Return the labels that fit, and whether there is room for blanks around each."""
        full = [label for _, label, _ in self.choices]
        short = [label for _, _, label in self.choices]
        mixed = [label if index == self.current else short[index] for index, label in enumerate(full)]
        forms = [(labels, roomy) for labels in (full, mixed, short) for roomy in (True, False)]
        return next((form for form in forms if self._length(*form) <= width), (short, False))

    def _add(self, text: Text, index: int, label: str, blank: str) -> None:
        if index:
            text.append(self.separator, look_style(self, "choice--other"))
        key = self.choices[index][0]
        body = look_style(self, "choice--current" if index == self.current else "choice--other")
        text.append(blank, body)
        text.append(f"{key} " if key else "", body + look_style(self, "choice--key"))
        text.append(f"{label}{blank}", body)

    def _length(self, labels: list[str], roomy: bool) -> int:
        keys = sum(len(key) + 1 for key, _, _ in self.choices if key)
        blanks = (2 if roomy else 0) * len(labels)
        return sum(map(cell_len, labels)) + keys + blanks + len(self.separator) * (len(labels) - 1)
