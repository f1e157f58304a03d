"""Screens over the app: the keys, and the question before a file is edited."""

from dataclasses import replace
from typing import ClassVar, Protocol

from textual.app import App, ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widget import Widget

from aotlens.view.tabs.keys import Pair, help_lines
from aotlens.view.tabs.tables.rows import Line
from tui.keys import sentence_of
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
    def active_bindings(self) -> dict[str, ActiveBinding]: ...

    @property
    def pane(self) -> Widget: ...


def key_help(screen: HasPane, tab: str, tab_keys: str) -> HelpScreen:
    """Return the help: the keys of the open tab, those of the focused list or text, and those of the app."""
    here: dict[str, Pair] = {}
    focused: dict[str, Pair] = {}
    everywhere: dict[str, Pair] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if not active.enabled or not binding.id or binding.id.startswith("tab."):
            continue
        group = everywhere if active.node in (screen, screen.app) else focused
        group = here if active.node is screen.pane else group
        shown = screen.app.get_key_display(binding)
        before = group[binding.id][0] if binding.id in group else ""
        every = before if shown in before.split() else f"{before} {shown}".strip()
        group[binding.id] = (every, sentence_of(binding))
    sections = (
        (f"In {tab}", tuple(here.values())),
        ("Where the cursor is", tuple(focused.values())),
        ("Everywhere", ((tab_keys, "Open a tab."), *everywhere.values())),
    )
    return HelpScreen(help_lines(sections))


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
        box.border_subtitle = f"y writes the file · n cancels{' · ← → another one' if several else ''}"
        # Nothing is cut: these are the lines that the file will have.
        self.query_one(LineList).show(tuple(replace(line, wrap=True) for line in lines))

    def action_answer(self, yes: bool) -> None:
        self.dismiss(self.selected if yes else -1)
