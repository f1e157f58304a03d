"""Figures that only a screen needs: short sizes, differences, bars, curves."""

from collections.abc import Sequence
from itertools import pairwise

from aotlens.report.summary import human_bytes

SHORT_UNITS = ("B", "K", "M", "G", "T")
EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def scaled(size_bytes: int) -> tuple[float, int]:
    """The size in its largest unit that keeps it at least 1, and that unit's index."""
    value, unit = float(size_bytes), 0
    while abs(value) >= 1024 and unit < len(SHORT_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return value, unit


def gutter_size(size_bytes: int) -> str:
    """At most four cells: `3.1M`, `512B`, `48K`."""
    value, unit = scaled(size_bytes)
    if value >= 1000:
        value, unit = value / 1024, min(unit + 1, len(SHORT_UNITS) - 1)
    number = f"{value:.1f}" if unit and value < 9.95 else f"{value:.0f}"
    return f"{number}{SHORT_UNITS[unit]}"


def signed_size(size_bytes: int) -> str:
    """`+3.1 MiB` or `-512 B`."""
    return f"{'-' if size_bytes < 0 else '+'}{human_bytes(abs(size_bytes))}"


def bar(value: int, largest: int, width: int) -> str:
    """A bar of at most `width` cells, exact to an eighth of a cell."""
    if largest <= 0 or value <= 0:
        return ""
    eighths = max(1, round(value * width * 8 / largest))
    full, rest = divmod(eighths, 8)
    return EIGHTHS[8] * full + (EIGHTHS[rest] if rest else "")


def buckets(values: Sequence[int], width: int) -> list[int]:
    """The largest value of each of `width` equal parts, so that no peak is lost."""
    if not values or width <= 0:
        return []
    cells = min(width, len(values))
    edges = [index * len(values) // cells for index in range(cells + 1)]
    return [max(values[start:end]) for start, end in pairwise(edges)]


def plot(values: Sequence[int], width: int, height: int) -> tuple[str, ...]:
    """The curve as filled columns, the top line first, exact to an eighth of a line."""
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
