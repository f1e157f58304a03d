"""The keys in words, for the bottom line and the help screen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from aotlens.view.tabs.rows import Line, Part

Pair = tuple[str, str]
"""A key, and what it does."""


@dataclass(frozen=True, slots=True)
class KeyLabel:
    """One key of the line at the bottom."""

    key: str
    """Textual's name of the key."""
    shown: str
    does: str

    @property
    def width(self) -> int:
        return cell_len(self.shown) + cell_len(self.does) + 2


def flowed(labels: Iterable[KeyLabel], width: int) -> tuple[tuple[KeyLabel, ...], ...]:
    """Return the labels in rows of at most that width; a wider label has a row of its own."""
    rows: list[list[KeyLabel]] = []
    used = width + 1
    for label in labels:
        if used + label.width > width:
            rows.append([])
            used = 0
        rows[-1].append(label)
        used += label.width
    return tuple(map(tuple, rows))


MOVING: tuple[Pair, ...] = (
    ("↑ ↓ j k", "move"),
    ("PgUp PgDn", "a page"),
    ("g G", "first, last"),
    ("← →", "scroll a text sideways"),
    ("n N", "next, previous match"),
    ("Enter", "open the row's details"),
    ("tab ⇧tab", "next, previous pane"),
)
LEGEND = (
    ("3.1M", "bytes that this line saves for the backward", "saved"),
    ("k4", "kernels that compute part of it", "op"),
    ("M A", "an input is mutated; an output aliases a tensor", "mutation"),
    ("E W i h", "error, warning, information, hint", "warning"),
    ("▌", "the line of the selected row; its expression is underlined", "accent"),
    ("•", "a row that belongs to the line under the source's cursor", "accent"),
)
KEY_WIDTH = 11
TEXT_WIDTH = 25


def help_lines(tab: str, here: Sequence[Pair], everywhere: Sequence[Pair], tab_keys: str) -> tuple[Line, ...]:
    """Return the keys of the open tab, those that act everywhere, and the marks of the gutter."""
    lines = [Line((Part(f"In {tab}", "heading"),)), *columns(here)] if here else []
    lines += [
        Line((Part("Everywhere", "heading"),)),
        *columns([(tab_keys, "open a tab"), *MOVING, *everywhere]),
        Line((Part("In the gutter of the source", "heading"),)),
    ]
    lines += [Line((Part(f"{sign:<{KEY_WIDTH}}", role), Part(text))) for sign, text, role in LEGEND]
    return tuple(lines)


def columns(pairs: Sequence[Pair]) -> Iterable[Line]:
    """Two columns of keys."""
    half = (len(pairs) + 1) // 2
    for row in range(half):
        parts = [*key_parts(pairs[row])]
        if row + half < len(pairs):
            parts += key_parts(pairs[row + half])
        parts[-1] = Part(parts[-1].text.rstrip())
        yield Line(tuple(parts))


def key_parts(pair: Pair) -> tuple[Part, Part]:
    key, text = pair
    return Part(f"{key:<{KEY_WIDTH}}", "accent"), Part(f"{text:<{TEXT_WIDTH}}")
