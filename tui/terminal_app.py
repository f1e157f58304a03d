"""The app apart from reports: the user's settings, themes and colours, and how it ends.

Invariant: nothing here imports a tab or a record of the report before the first paint.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import textual
from rich.console import Group
from rich.text import Text
from textual.app import App

from tui.endings import exit_code
from tui.preferences import Preferences, Remembered, checked
from tui.served import is_served, server_pid
from tui.widgets.palette import Palette, needs_palette
from tui.widgets.plain import PlainText, is_plain
from tui.widgets.theme import DARK, LIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.filter import LineFilter

    from tui.widgets.split import Split

ALONE_S = 2.0
"""The interval at which an app in a browser checks that its server runs."""

HANGUP = getattr(signal, "SIGHUP", None)
HANGUP_GRACE_S = 10.0
"""The time that the app has to end in order; the worker ends in any case."""


class TerminalApp(App[int]):
    """An app with the user's theme, keys and split, which ends in order on every signal."""

    def __init__(self) -> None:
        super().__init__()
        self.remembered = Remembered()
        self.ended_by: int | None = None
        """The signal that ended the app."""
        self._plain = (PlainText(),) if is_plain(os.environ) and not is_served() else ()
        self.register_theme(DARK)
        self.register_theme(LIGHT)

    # Settings and colours.

    def use(self, preferences: Preferences) -> None:
        """Apply the user's settings, then the choices of the last session; call this before the app runs."""
        self.remembered = preferences.remembered
        self.settings = checked(preferences.settings, self.available_themes, default_keys)
        chosen = self.settings.theme or self.remembered.theme
        self.theme = chosen if chosen in self.available_themes else DARK.name
        self.set_keymap(self.settings.keys)

    def get_line_filters(self) -> Sequence[LineFilter]:
        colours = (Palette(),) if needs_palette(color_system(self)) else ()
        return (*super().get_line_filters(), *colours, *self._plain)

    def action_theme(self) -> None:
        """Switch between our dark and our light theme."""
        self.theme = DARK.name if self.theme == LIGHT.name else LIGHT.name

    def watch_theme(self, theme: str) -> None:
        self.remembered = replace(self.remembered, theme=theme)

    def on_split_moved(self, event: Split.Moved) -> None:
        shares = {**self.remembered.shares, event.layout: event.percent}
        self.remembered = replace(self.remembered, shares=shares)

    # Ending.

    def action_help_quit(self) -> None:
        """Handle Ctrl-C without selected text to copy; Textual's version only names the key to press."""
        self.end(signal.SIGINT)

    def end(self, number: int) -> None:
        """End the app on a signal, or on its key."""
        self.ended_by = number
        self.exit()
        if number == HANGUP:  # a closed terminal may block on output
            leave = threading.Timer(HANGUP_GRACE_S, os._exit, (exit_code(number),))
            leave.daemon = True
            leave.start()

    def watch_server(self) -> None:
        """In a browser, check every few seconds that the server runs; call it once the app runs."""
        if is_served():
            self.set_interval(ALONE_S, partial(self._end_alone, server_pid()))

    def _end_alone(self, server: int) -> None:
        """End a browser's app once the server is gone, since nobody else does."""
        if os.getppid() != server:
            self.exit()

    def _fatal_error(self) -> None:
        """Textual's hook for an exception that nobody caught; its own prints every local."""
        from rich.traceback import Traceback  # with Pygments it takes a tenth of the time to the first screen

        message = (
            "aotlens tui failed; this is a bug of aotlens, not of the script: please report the lines above"
        )
        self.panic(Group(Traceback(show_locals=False, suppress=[textual]), Text(message, "bold")))


def default_keys() -> tuple[dict[str, tuple[str, ...]], ...]:
    """Return name and keys of all bindings; this loads every tab."""
    from tui import commands

    return commands.default_keys()


def color_system(app: App[int]) -> str | None:
    """Return Rich's name for the colours of the terminal: `truecolor`, `256`, …"""
    return app.console.color_system
