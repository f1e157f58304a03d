"""The keys of the focused widget, on as many lines as they need: a narrow screen hides none."""

from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from aotlens.view.tabs.keys import KeyLabel, flowed
from tui.widgets.theme import look_style

SEPARATOR = KeyLabel("", "│", "")
"""Between the keys of the focused pane and those that act everywhere."""


class KeyBar(Widget):
    """Each key with its action; a click on one presses it."""

    DEFAULT_CSS = """
    KeyBar { dock: bottom; height: auto; max-height: 3; background: $panel; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.labels: tuple[KeyLabel, ...] = ()

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if not self.is_attached or screen is not self.screen:
            return
        labels = tuple(self._offered(screen))
        if labels != self.labels:
            self.labels = labels
            self.refresh(layout=True)

    def _offered(self, screen: Screen[object]) -> dict[KeyLabel, None]:
        """Return the visible bindings, one per action: those of the focused pane, then those of the app."""
        focused: dict[str, KeyLabel] = {}
        everywhere: dict[str, KeyLabel] = {}
        palette = self.app.COMMAND_PALETTE_BINDING
        for active in screen.active_bindings.values():
            binding = active.binding
            group = everywhere if active.node in (screen, self.app) else focused
            if (binding.show or binding.key == palette) and active.enabled:
                label = KeyLabel(binding.key, self.app.get_key_display(binding), binding.description)
                group.setdefault(binding.action, label)
        last = [label for label in everywhere.values() if label.key == palette]
        rest = [label for label in everywhere.values() if label.key != palette]
        return dict.fromkeys([*focused.values(), *([SEPARATOR] if focused else []), *rest, *last])

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(flowed(self.labels, width)))

    def render_line(self, y: int) -> Strip:
        rows = flowed(self.labels, self.size.width)
        text = Text(no_wrap=True, end="")
        for label in rows[y] if y < len(rows) else ():
            text.append(f" {label.shown}", look_style(self, "key-bar--key"))
            text.append(f" {label.does}", look_style(self, "key-bar--label"))
        strip = Strip(text.render(self.app.console)).adjust_cell_length(self.size.width)
        return strip.apply_style(self.rich_style)

    def on_click(self, event: events.Click) -> None:
        rows, offset = flowed(self.labels, self.size.width), event.x
        for label in rows[event.y] if event.y < len(rows) else ():
            offset -= label.width
            if offset < 0:
                if label.key:
                    self.app.simulate_key(label.key)
                return
