"""Numbers as people read them: sizes, counts, times, bars."""

from collections.abc import Sequence
from itertools import pairwise

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SHORT_UNITS = ("B", "K", "M", "G", "T")
EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def scaled(size_bytes: int) -> tuple[float, int]:
    """The size in its largest unit that keeps it at least 1, and that unit's index."""
    value, unit = float(size_bytes), 0
    while abs(value) >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return value, unit


def size(size_bytes: int | None) -> str:
    """`3.1 MiB`; `?` when the size is symbolic."""
    if size_bytes is None:
        return "?"
    value, unit = scaled(size_bytes)
    return f"{value:.0f} {UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {UNITS[unit]}"


def gutter_size(size_bytes: int) -> str:
    """At most four cells: `3.1M`, `512B`, `48K`."""
    value, unit = scaled(size_bytes)
    if value >= 1000:
        value, unit = value / 1024, min(unit + 1, len(SHORT_UNITS) - 1)
    number = f"{value:.1f}" if unit and value < 9.95 else f"{value:.0f}"
    return f"{number}{SHORT_UNITS[unit]}"


def signed_size(size_bytes: int) -> str:
    """`+3.1 MiB` or `-512 B`."""
    return f"{'-' if size_bytes < 0 else '+'}{size(abs(size_bytes))}"


def count(number: int, noun: str = "") -> str:
    """`1,093 nodes`, `1 node`; the bare number without a noun."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(elapsed_ms: float) -> str:
    """`1.24 s`, `210 ms`, `0.4 ms`."""
    if elapsed_ms >= 1000:
        return f"{elapsed_ms / 1000:.2f} s"
    return f"{elapsed_ms:.0f} ms" if elapsed_ms >= 10 else f"{elapsed_ms:.1f} ms"


def flops(number: int) -> str:
    """`2.1 GFLOP`."""
    value, unit = float(number), 0
    units = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")
    while value >= 1000 and unit < len(units) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {units[unit]}" if unit == 0 else f"{value:.1f} {units[unit]}"


def bar(value: int, largest: int, width: int) -> str:
    """A bar of at most `width` cells, exact to an eighth of a cell."""
    if largest <= 0 or value <= 0:
        return ""
    eighths = max(1, round(value * width * 8 / largest))
    full, rest = divmod(eighths, 8)
    return EIGHTHS[8] * full + (EIGHTHS[rest] if rest else "")


def sparkline(values: Sequence[int], width: int) -> str:
    """The curve in `width` cells; each cell shows the largest value of its part, so no peak is lost."""
    if not values or width <= 0:
        return ""
    cells = min(width, len(values))
    edges = [index * len(values) // cells for index in range(cells + 1)]
    parts = [max(values[start:end]) for start, end in pairwise(edges)]
    top = max(parts) or 1
    return "".join(LEVELS[round(part * (len(LEVELS) - 1) / top)] for part in parts)
