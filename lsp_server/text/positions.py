"""Columns in a client's units, and back.

Invariant: a report counts UTF-8 bytes, Python counts code points, a client counts the negotiated units; every
column sent or received goes through this module.
"""

from typing import Literal

Encoding = Literal["utf-8", "utf-16", "utf-32"]


def width(text: str, encoding: Encoding) -> int:
    """Return how many units of `encoding` the text takes."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def char_index(line: str, units: int, encoding: Encoding) -> int:
    """Return the code point at column `units`.

    A column past the end is the end; one inside a character is that character's start.
    """
    if units <= 0:
        return 0
    if encoding == "utf-32" or line.isascii():
        return min(units, len(line))
    seen = 0
    for index, char in enumerate(line):
        seen += width(char, encoding)
        if seen > units:
            return index
    return len(line)


def convert(line: str, units: int, source: Encoding, wanted: Encoding) -> int:
    """Column `units` of `source` in units of `wanted`."""
    if source == wanted:
        return min(max(units, 0), width(line, source))
    return width(line[: char_index(line, units, source)], wanted)
