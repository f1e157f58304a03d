"""The text of the help screen."""

from collections.abc import Iterable

from tui.view.rows import Line, Part

MOVING = (
    ("1 … 7", "open a tab"),
    ("↑ ↓ j k", "move"),
    ("PgUp PgDn", "a page"),
    ("g G", "first, last"),
    ("← →", "scroll a text sideways"),
    ("n N", "next match, match before"),
    ("Enter", "open what the row means"),
)
LEGEND = (
    ("3.1M", "bytes that this line keeps for the backward", "saved"),
    ("M", "an input is mutated here", "mutation"),
    ("A", "an output that shares memory is made here", "alias"),
    ("E W i h", "error, warning, information, hint", "warning"),
    ("▌", "the line of the selected row; its expression is underlined", "accent"),
    ("•", "a row that stands for the line under the source's cursor", "accent"),
)
KEY_WIDTH = 11
TEXT_WIDTH = 25


def help_lines(keys: Iterable[tuple[str, str]]) -> tuple[Line, ...]:
    """Two columns of keys, then what the gutter says."""
    pairs = [*MOVING, *keys]
    half = (len(pairs) + 1) // 2
    lines = []
    for place in range(half):
        parts = [*key_parts(pairs[place])]
        if place + half < len(pairs):
            parts += key_parts(pairs[place + half])
        parts[-1] = Part(parts[-1].text.rstrip())
        lines.append(Line(tuple(parts)))
    lines += [Line(), Line((Part("In the gutter of the source", "heading"),))]
    lines += [Line((Part(f"{sign:<{KEY_WIDTH}}", role), Part(text))) for sign, text, role in LEGEND]
    return tuple(lines)


def key_parts(pair: tuple[str, str]) -> tuple[Part, Part]:
    key, text = pair
    return Part(f"{key:<{KEY_WIDTH}}", "accent"), Part(f"{text:<{TEXT_WIDTH}}")
