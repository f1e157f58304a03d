"""What the palette offers, and the keys that a keymap can change.

Invariant: the words are those of the bindings (`tui.keys.bind`), so the help, the palette and the list of
`aotlens tui --keys` say the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode

from aotlens.model.report import Target
from tui.keys import APP_BINDINGS, sentence_of
from tui.panes.registry import CHOICES, TABS
from tui.widgets.code import CodeView
from tui.widgets.node_map import NodeMap
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable
from tui.workbench import Workbench

MOVING = ("list.", "text.", "map.", "focus.", "tab.", "help")
"""Bindings that the palette leaves out: they move where the cursor is, or have an entry of their own."""


def commands(app: App[Any], workbench: Workbench, targets: Sequence[Target]) -> Iterable[SystemCommand]:
    """Yield the commands as sentences, each once and with its first key."""
    named: set[str] = set()
    for active in workbench.active_bindings.values():
        binding = active.binding
        if binding.id and active.enabled and not binding.id.startswith(MOVING) and binding.id not in named:
            named.add(binding.id)
            act = partial(app.run_action, binding.action, active.node)
            yield SystemCommand(sentence_of(binding), f"Key {app.get_key_display(binding)}", act)
    for index, (shown, label, _) in enumerate(CHOICES):
        open_tab = partial(workbench.open_tab, index)
        yield SystemCommand(f"Open the tab {label}.", f"Key {shown}", open_tab)
    for index, target in enumerate(targets):
        choose = partial(workbench.choose_target, index)
        sentence = f"Show {target.qualname}, traced for {target.mode}."
        yield SystemCommand(sentence, "One of the targets of the script", choose)
    yield SystemCommand("Choose another theme.", "It is remembered", app.action_change_theme)


HOLDERS: tuple[type[DOMNode], ...] = (
    *(tab.pane_class() for tab in TABS),
    VirtualTable,
    RowList,
    CodeView,
    NodeMap,
)


def _groups() -> tuple[Sequence[BindingType], ...]:
    """Return the bindings that act together: those of the app, and those of each pane and widget."""
    return ((*Workbench.BINDINGS, *APP_BINDINGS), *(holder.BINDINGS for holder in HOLDERS))


def every_binding() -> Iterator[Binding]:
    """Yield all bindings that a keymap can change."""
    known: set[str] = set()
    for group in _groups():
        for binding in group:
            if isinstance(binding, Binding) and binding.id is not None and binding.id not in known:
                known.add(binding.id)
                yield binding


def default_keys() -> tuple[dict[str, tuple[str, ...]], ...]:
    """Return name and keys of the bindings that act together."""
    return tuple(
        {
            binding.id: tuple(binding.key.split(","))
            for binding in group
            if isinstance(binding, Binding) and binding.id is not None
        }
        for group in _groups()
    )


def key_lines() -> Iterator[str]:
    """Yield name, keys and sentence of each binding, as `aotlens tui --keys` prints them."""
    bindings = sorted(every_binding(), key=lambda binding: str(binding.id))
    names, keys = (
        max(map(len, texts)) for texts in zip(*((str(b.id), b.key) for b in bindings), strict=True)
    )
    for binding in bindings:
        yield f"{binding.id!s:<{names}}  {binding.key:<{keys}}  {sentence_of(binding)}"
