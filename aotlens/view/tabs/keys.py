"""The keys in words, for the bottom line and the help screen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from aotlens.view.tabs.tables.rows import Line, Part

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


LEGEND = (
    ("3.1M", "bytes that this line saves for the backward", "saved"),
    ("k4", "kernels that compute part of it", "op"),
    ("M A", "an input is mutated; an output aliases a tensor", "mutation"),
    ("E W i h", "error, warning, information, hint", "warning"),
    ("▌", "the line of the selected row; its expression is underlined", "accent"),
    ("•", "a row that belongs to the line under the source's cursor", "accent"),
)
KEY_WIDTH = 13


def help_lines(sections: Sequence[tuple[str, Sequence[Pair]]]) -> tuple[Line, ...]:
    """Return each section of keys with its heading, and the marks of the gutter."""
    lines: list[Line] = []
    for heading, pairs in sections:
        if pairs:
            lines.append(Line((Part(heading, "heading"),)))
            lines += [
                Line((Part(f"{shown:<{KEY_WIDTH - 1}} ", "accent"), Part(does))) for shown, does in pairs
            ]
    lines.append(Line((Part("In the gutter of the source", "heading"),)))
    lines += [Line((Part(f"{sign:<{KEY_WIDTH}}", role), Part(text))) for sign, text, role in LEGEND]
    return tuple(lines)
