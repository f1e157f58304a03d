"""Curves in braille: two by four dots a cell."""

from collections.abc import Iterable
from itertools import pairwise

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a cell, by row and column."""
EMPTY = 0x2800

Dot = tuple[int, int]
"""Column and row, from the top left."""


def curve(points: Iterable[tuple[float, float]], width: int, height: int) -> tuple[str, ...]:
    """A line through points of the unit square (x to the right, y up), as rows of cells, the top first."""
    cells = [[EMPTY] * width for _ in range(height)]
    dots = [to_dot(x, y, width, height) for x, y in points]
    for start, end in pairwise(dots):
        for column, row in between(start, end):
            cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]
    return tuple("".join(map(chr, line)).replace(chr(EMPTY), " ") for line in cells)


def to_dot(x: float, y: float, width: int, height: int) -> Dot:
    return round(x * (2 * width - 1)), round((1 - y) * (4 * height - 1))


def to_cell(x: float, y: float, width: int, height: int) -> Dot:
    """The cell that a point falls into: its column and its row."""
    column, row = to_dot(x, y, width, height)
    return column // 2, row // 4


def between(start: Dot, end: Dot) -> Iterable[Dot]:
    """The dots of a straight line, both ends included."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    for step in range(steps + 1):
        yield (
            start[0] + round(step * (end[0] - start[0]) / steps),
            start[1] + round(step * (end[1] - start[1]) / steps),
        )
