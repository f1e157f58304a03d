"""Bars and curves drawn with block characters, for every front end."""

from collections.abc import Sequence
from itertools import pairwise

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def bar(value: int, largest: int, width: int) -> str:
    """Return a bar of at most `width` cells, exact to an eighth of a cell."""
    if largest <= 0 or value <= 0:
        return ""
    eighths = max(1, round(value * width * 8 / largest))
    full, rest = divmod(eighths, 8)
    return EIGHTHS[8] * full + (EIGHTHS[rest] if rest else "")


def buckets(values: Sequence[int], width: int) -> list[int]:
    """Return the largest value of each of `width` equal parts, so that no peak is lost."""
    if not values or width <= 0:
        return []
    cells = min(width, len(values))
    edges = [index * len(values) // cells for index in range(cells + 1)]
    return [max(values[start:end]) for start, end in pairwise(edges)]


def plot(values: Sequence[int], width: int, height: int) -> tuple[str, ...]:
    """Return the curve as filled columns, the top line first, exact to an eighth of a line."""
    parts = buckets(values, width)
    top = max(parts, default=0) or 1
    eighths = [round(part * height * len(LEVELS) / top) for part in parts]
    return tuple(
        "".join(column_cell(filled - line * len(LEVELS)) for filled in eighths)
        for line in range(height - 1, -1, -1)
    )


def column_cell(eighths: int) -> str:
    """One cell of a column that reaches so many eighths above the cell's foot."""
    return " " if eighths <= 0 else LEVELS[min(eighths, len(LEVELS)) - 1]
