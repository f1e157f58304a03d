"""Cells of a drawing with their roles, and the edges between boxes.

Invariant: lines of one net join where they meet; lines of different nets cross without a joint.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aotlens.view.tabs.tables.rows import Part

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
CORNERS = {
    LEFT | RIGHT: "─",
    UP | DOWN: "│",
    DOWN | RIGHT: "╭",
    DOWN | LEFT: "╮",
    UP | RIGHT: "╰",
    UP | LEFT: "╯",
    UP | DOWN | RIGHT: "├",
    UP | DOWN | LEFT: "┤",
    DOWN | LEFT | RIGHT: "┬",
    UP | LEFT | RIGHT: "┴",
    UP | DOWN | LEFT | RIGHT: "┼",
    LEFT: "─",
    RIGHT: "─",
    UP: "│",
    DOWN: "│",
}
LONGEST_TEXT = 44
"""Characters of one text, more than any box has room for."""


@dataclass(frozen=True, slots=True)
class Wire:
    """An edge from the row of one box to the row of another."""

    start: int
    end: int
    across: bool = False
    """True if it leads to the other graph."""


@dataclass(frozen=True, slots=True)
class Net:
    """Edges with an end in common, which share a lane."""

    wires: tuple[Wire, ...]
    lane: int = 0


def in_lanes(nets: Sequence[tuple[Wire, ...]]) -> tuple[Net, ...]:
    """Return the nets, each in the first lane where it overlaps none before it.

    A net that ends in the row where another one begins lies right of it, so that they share no part of it.
    """
    lanes: list[list[tuple[int, int]]] = []
    placed: list[Net] = []
    waiting = list(nets)
    while waiting:
        free = (wires for wires in waiting if not any(_blocks(other, wires) for other in waiting))
        wires = next(free, waiting[0])
        waiting.remove(wires)
        least = max((net.lane + 1 for net in placed if _blocks(net.wires, wires)), default=0)
        rows = [row for wire in wires for row in (wire.start, wire.end)]
        top, bottom = min(rows), max(rows)
        lane = least
        while lane < len(lanes) and any(top <= last and first <= bottom for first, last in lanes[lane]):
            lane += 1
        lanes += ([] for _ in range(lane + 1 - len(lanes)))
        lanes[lane].append((top, bottom))
        placed.append(Net(wires, lane))
    return tuple(placed)


def _blocks(first: tuple[Wire, ...], second: tuple[Wire, ...]) -> bool:
    """Return True if the second net ends in a row where the first one begins."""
    return first is not second and not {wire.start for wire in first}.isdisjoint(wire.end for wire in second)


class Canvas:
    """Cells with their roles."""

    def __init__(self, width: int, height: int) -> None:
        self._cells = [[(" ", "")] * width for _ in range(height)]
        self._nets: list[defaultdict[tuple[int, int], int]] = []
        """Of each net the directions in which its lines leave each cell."""
        self._arrows: list[tuple[int, int, str]] = []

    def edge(self, net: Net, start: int, end: int) -> None:
        """Add the wires of a net between the column that ends before `start` and the one at `end`."""
        lines: defaultdict[tuple[int, int], int] = defaultdict(int)
        lane = start + 1 + net.lane
        for wire in net.wires:
            _across(lines, start, lane - 1, wire.start)
            lines[lane, wire.start] |= LEFT
            _down(lines, lane, (wire.start, wire.end))
            lines[lane, wire.end] |= RIGHT
            _across(lines, lane + 1, end - 2, wire.end)
            self._arrows.append((end - 1, wire.end, "saved" if wire.across else "dim"))
        self._nets.append(lines)

    def has_line(self, x: int, y: int) -> bool:
        return any((x, y) in lines for lines in self._nets)

    def draw_edges(self) -> None:
        """Draw all nets; where two cross, the vertical line is on top."""
        for lines in sorted(self._nets, key=len):
            for (x, y), ways in lines.items():
                if ways & (UP | DOWN) or not self._is_vertical(x, y):
                    self.put(x, y, CORNERS[ways], "dim")
        for x, y, role in self._arrows:
            self.put(x, y, "▶", role)

    def _is_vertical(self, x: int, y: int) -> bool:
        return any(lines.get((x, y), 0) & (UP | DOWN) for lines in self._nets)

    def put(self, x: int, y: int, char: str, role: str) -> None:
        if 0 <= y < len(self._cells) and 0 <= x < len(self._cells[y]):
            self._cells[y][x] = (char, role)

    def write(self, x: int, y: int, text: str, role: str, most: int = LONGEST_TEXT) -> None:
        for offset, char in enumerate(text[:most]):
            self.put(x + offset, y, char, role)

    def rows(self) -> tuple[tuple[Part, ...], ...]:
        return tuple(tuple(joined(row)) for row in self._cells)


def _across(lines: defaultdict[tuple[int, int], int], first: int, last: int, y: int) -> None:
    for x in range(first, last + 1):
        lines[x, y] |= LEFT | RIGHT


def _down(lines: defaultdict[tuple[int, int], int], x: int, rows: tuple[int, int]) -> None:
    start, end = rows
    step = 1 if end > start else -1
    for y in range(start, end, step):
        lines[x, y] |= DOWN if step > 0 else UP
        lines[x, y + step] |= UP if step > 0 else DOWN


def joined(cells: Iterable[tuple[str, str]]) -> Iterable[Part]:
    """Neighbouring cells of one role as one part."""
    text, current = "", ""
    for char, role in cells:
        if role != current and text:
            yield Part(text, current)
            text = ""
        current = role
        text += char
    if text:
        yield Part(text, current)
