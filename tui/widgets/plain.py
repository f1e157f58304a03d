"""For terminals without Unicode: every character drawn becomes one of ASCII that takes as many cells.

Invariant: signs that mean different things stay different.
"""

import unicodedata
from collections.abc import Mapping

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

SIGNS = {
    **dict.fromkeys("─━╌┄┅═▁", "-"),
    **dict.fromkeys("│┃┊╎║▏▕", "|"),
    **dict.fromkeys("╭╮╰╯┌┐└┘┏┓┗┛├┤┬┴┼╔╗╚╝", "+"),
    **dict.fromkeys("▂▃", "."),
    **dict.fromkeys("▄▅", ":"),
    **dict.fromkeys("▆▇", "="),
    **dict.fromkeys("█▉▊▋▌▍▎▐", "#"),
    "›": ">",
    "•": "*",
    "●": "@",
    "○": "o",
    "◐": "%",
    "▲": "^",
    "▼": "v",
    "◀": "<",
    "▶": ">",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "⇧": "^",
    "⌫": "<",
    "⏎": "\\",
    "…": "~",
    "⋯": "~",
    "·": "-",
    "×": "x",
    "–": "-",
    "−": "-",
    "µ": "u",
    "±": "~",
    "✓": "+",
    "⎇": "&",
}
UNKNOWN = "?"
UNICODE = ("UTF-8", "UTF8")


def is_plain(environment: Mapping[str, str]) -> bool:
    """Return True if the locale says that the terminal has no Unicode; without a locale it has.

    Python itself sets LC_CTYPE to C.UTF-8 in the locale C, so that value alone decides nothing.
    """
    named = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    if named == "C.UTF-8" and not environment.get("LC_ALL"):
        named = environment.get("LANG") or ""
    return bool(named) and not any(form in named.upper() for form in UNICODE)


class PlainText(LineFilter):
    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same segments in ASCII."""
        return [
            Segment(plain(text), style, control) if not control and not text.isascii() else segment
            for segment in segments
            for text, style, control in (segment,)
        ]


def plain(text: str) -> str:
    """Return the text in as many cells; letters lose their accents, other characters become question
    marks."""
    return "".join(char if char.isascii() else ascii_likeness(char) for char in text)


def ascii_likeness(char: str) -> str:
    if char in SIGNS:
        return SIGNS[char]
    base = unicodedata.normalize("NFKD", char)[0]
    return base if base.isascii() and cell_len(char) == 1 else UNKNOWN * cell_len(char)
