"""Screens over the app: the keys, and the question before a file is edited."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from tui.view.rows import Line
from tui.widgets.lines import LineList

BOX_CSS = """
    {name} {{ align: center middle; background: $background 60%; }}
    {name} > Vertical {{ width: 84; max-width: 96%; height: auto; max-height: 92%; padding: 0 1;
        background: $surface; border: round $primary; border-title-color: $primary; }}
    {name} LineList {{ height: auto; background: $surface; }}
"""


class HelpScreen(ModalScreen[None]):
    """All keys of the place where the cursor is."""

    DEFAULT_CSS = BOX_CSS.format(name="HelpScreen")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, lines: tuple[Line, ...]) -> None:
        super().__init__()
        self.lines = lines

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Keys"
            box.border_subtitle = "Esc closes"
            yield LineList(id="help-lines")

    def on_mount(self) -> None:
        self.query_one(LineList).show(self.lines)

    def on_resize(self) -> None:
        self.query_one(LineList).show(self.lines)


class ConfirmScreen(ModalScreen[bool]):
    """Shows an edit and asks whether to make it."""

    DEFAULT_CSS = BOX_CSS.format(name="ConfirmScreen")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, title: str, lines: tuple[Line, ...]) -> None:
        super().__init__()
        self.question = title
        self.lines = lines

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = self.question
            box.border_subtitle = "y writes the file · n leaves it"
            yield LineList(id="confirm-lines")

    def on_mount(self) -> None:
        self.query_one(LineList).show(self.lines)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
