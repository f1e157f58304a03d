"""Screens over the app: the keys, and the question before a file is edited."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widget import Widget

from aotlens.view.tabs.keys import help_lines
from aotlens.view.tabs.rows import Line
from tui.widgets.lines import LineList

BOX_CSS = """
    {name} {{ align: center middle; background: $background 60%; }}
    {name} > Vertical {{ width: 84; max-width: 96%; height: auto; max-height: 92%; padding: 0 1;
        background: $surface; border: round $primary; border-title-color: $primary; }}
    {name} LineList {{ height: auto; background: $surface; }}
"""


class HelpScreen(ModalScreen[None]):
    """All keys of the focused widget."""

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


class HasPane(Protocol):
    """A screen with tabs, as the help requires."""

    app: App[int]
    BINDINGS: ClassVar[list[BindingType]]

    @property
    def pane(self) -> Widget: ...

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None: ...


def key_help(screen: HasPane, tab: str, tab_keys: str) -> HelpScreen:
    """Return the help for the open tab."""

    def offered(bindings: Sequence[BindingType]) -> list[tuple[str, str]]:
        """Return key and description of active bindings; keys that move to tabs and panes have one entry for
        all."""
        known = [binding for binding in bindings if isinstance(binding, Binding)]
        acting = [
            each
            for each in known
            if not each.action.startswith(("tab(", "app.focus_"))
            and all(holder.check_action(each.action, ()) is not False for holder in (screen.pane, screen))
        ]
        return [(screen.app.get_key_display(binding), binding.description.lower()) for binding in acting]

    everywhere = [*screen.BINDINGS, *screen.app.BINDINGS]
    return HelpScreen(help_lines(tab, offered(screen.pane.BINDINGS), offered(everywhere), tab_keys))


class ConfirmScreen(ModalScreen[int]):
    """Shows the offered edits, one at a time; the answer is the index of the chosen one, or -1."""

    DEFAULT_CSS = BOX_CSS.format(name="ConfirmScreen")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
        Binding("right,tab", "other(1)", "Next fix"),
        Binding("left,shift+tab", "other(-1)", "Previous fix"),
    ]

    def __init__(self, choices: tuple[tuple[str, tuple[Line, ...]], ...]) -> None:
        super().__init__()
        self.choices = choices
        """Title and difference of each."""
        self.selected = 0

    def compose(self) -> ComposeResult:
        with Vertical():
            yield LineList(id="confirm-lines")

    def on_mount(self) -> None:
        self.action_other(0)

    def action_other(self, step: int) -> None:
        """Show another of the edits."""
        self.selected = (self.selected + step) % len(self.choices)
        title, lines = self.choices[self.selected]
        box = self.query_one(Vertical)
        several = len(self.choices) > 1
        box.border_title = f"{title} ({self.selected + 1} of {len(self.choices)})" if several else title
        box.border_subtitle = f"y writes the file · n cancels{' · ← → another fix' if several else ''}"
        self.query_one(LineList).show(lines)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(self.selected if yes else -1)
