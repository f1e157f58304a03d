"""A node drawn between its inputs (left) and its users (right).

Invariant: the drawing has exactly the requested width; text that does not fit is cut inside its box.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aotlens.view.shorten import shortened
from aotlens.view.tabs.rows import NO_LINK, Jump, Link, Part

GAP = 5
"""Cells between two columns of boxes: the edge, the line that joins edges, the arrow."""
WIDEST = 44
NARROWEST = 9
TALL = 3
"""Rows of a neighbour's box."""
CENTRE = 5
ENOUGH_ROWS = 9
"""From this height on neighbours have boxes; below it each takes one row."""

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


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One node of the drawing, in words."""

    name: str
    what: str
    """Its operator, or the kind of input."""
    shape: str = ""
    where: str = ""
    """The user's line, and the graph if it is the other one."""
    size: str = ""
    link: Link = NO_LINK
    jump: Jump | None = None
    """The row to which Enter leads; None for the node itself and for a count of further neighbours."""
    is_input: bool = False
    """True for an input of the graph."""
    across: bool = False
    """True for a node of the other graph: saved values go from the forward to the backward."""

    @property
    def inside(self) -> str:
        return f"{self.what}  {self.shape}".rstrip()


@dataclass(frozen=True, slots=True)
class Box:
    """A neighbour with its position."""

    item: Neighbour
    column: int
    """0 for inputs, 1 for the node itself, 2 for users."""
    left: int
    top: int
    width: int
    height: int

    @property
    def middle(self) -> int:
        return self.top + self.height // 2

    def holds(self, x: int, y: int) -> bool:
        return self.left <= x < self.left + self.width and self.top <= y < self.top + self.height


@dataclass(frozen=True, slots=True)
class Drawing:
    """Rows of coloured text, and the positions of the boxes."""

    rows: tuple[tuple[Part, ...], ...] = ()
    boxes: tuple[Box, ...] = ()

    @property
    def centre(self) -> int:
        """Return the box of the node itself."""
        return next((index for index, box in enumerate(self.boxes) if box.column == 1), 0)

    def box_at_offset(self, index: int, columns: int, rows: int) -> int:
        """Return the box that is so many columns and rows from a box; itself at the edge."""
        box = self.boxes[index]
        if columns:
            neighbours = [i for i, other in enumerate(self.boxes) if other.column == box.column + columns]
            return min(neighbours, key=lambda i: abs(self.boxes[i].middle - box.middle), default=index)
        order = [i for i, other in enumerate(self.boxes) if other.column == box.column]
        return order[max(0, min(len(order) - 1, order.index(index) + rows))]


def draw(
    node: Neighbour, read: Sequence[Neighbour], users: Sequence[Neighbour], size: tuple[int, int]
) -> Drawing:
    """Return the drawing in so many columns and, if possible, rows."""
    width, height = size
    columns = (tuple(read), (node,), tuple(users))
    tall = height >= ENOUGH_ROWS
    rows = max(height, *(len(items) * (TALL if tall else 1) for items in columns))
    widths = column_widths(columns, width)
    boxes = place_boxes(columns, widths, (min(rows, height), rows), tall)
    canvas = Canvas(width, rows)
    canvas.edges(boxes)
    for box in boxes:
        canvas.box(box)
    return Drawing(canvas.rows(), boxes)


def column_widths(columns: Sequence[Sequence[Neighbour]], width: int) -> list[int]:
    """Each as wide as its widest box, the widest cut until all fit."""
    natural = [
        max((min(WIDEST, max(len(item.name), len(item.inside)) + 4) for item in items), default=0)
        for items in columns
    ]
    room = width - GAP * (sum(map(bool, natural)) - 1)
    while sum(natural) > room and max(natural) > NARROWEST:
        natural[natural.index(max(natural))] -= 1
    return natural


def place_boxes(
    columns: Sequence[Sequence[Neighbour]], widths: Sequence[int], rows: tuple[int, int], tall: bool
) -> tuple[Box, ...]:
    """Return the boxes of each column, centred in the visible part, or from the top where the column is
    longer."""
    seen, _ = rows
    boxes: list[Box] = []
    left = 0
    for column, (items, wide) in enumerate(zip(columns, widths, strict=True)):
        high = (CENTRE if column == 1 else TALL) if tall else 1
        top = max(0, (seen - high * len(items)) // 2)
        for item in items:
            boxes.append(Box(item, column, left, top, wide, high))
            top += high
        left += wide + GAP if wide else 0
    return tuple(boxes)


class Canvas:
    """Cells with their roles; lines that meet are joined."""

    def __init__(self, width: int, height: int) -> None:
        self._cells = [[(" ", "")] * width for _ in range(height)]
        self._lines: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._arrows: list[tuple[int, int, str]] = []

    def edges(self, boxes: Sequence[Box]) -> None:
        """Draw the edges from each input to the node, and from the node to each user."""
        centre = next(box for box in boxes if box.column == 1)
        bus = centre.left - GAP + 1
        for box in (box for box in boxes if box.column == 0):
            self._across(box.left + box.width, bus - 1, box.middle)
            self._lines[bus, box.middle] |= LEFT
            self._down(bus, box.middle, centre.middle)
            self._lines[bus, centre.middle] |= RIGHT
            self._across(bus + 1, centre.left - 2, centre.middle)
            self._arrows.append((centre.left - 1, centre.middle, "dim"))
        edge = centre.left + centre.width
        for box in (box for box in boxes if box.column == 2):
            self._across(edge, edge, centre.middle)
            self._lines[edge + 1, centre.middle] |= LEFT
            self._down(edge + 1, centre.middle, box.middle)
            self._lines[edge + 1, box.middle] |= RIGHT
            self._across(edge + 2, box.left - 2, box.middle)
            self._arrows.append((box.left - 1, box.middle, "saved" if box.item.across else "dim"))
        for (x, y), ways in self._lines.items():
            self.put(x, y, CORNERS[ways], "dim")
        for x, y, role in self._arrows:
            self.put(x, y, "▶", role)

    def box(self, box: Box) -> None:
        if box.height == 1:
            self._one_row(box)
            return
        item, role = box.item, "accent" if box.column == 1 else "saved" if box.item.across else "dim"
        pieces = "┏━┓┃┗┛" if box.column == 1 else "╭╌╮╎╰╯" if item.across else "╭─╮│╰╯"
        last, right = box.top + box.height - 1, box.left + box.width - 1
        for y in range(box.top + 1, last):
            self.put(box.left, y, pieces[3], role)
            self.put(right, y, pieces[3], role)
        for y, first, end in ((box.top, pieces[0], pieces[2]), (last, pieces[4], pieces[5])):
            self.write(box.left, y, first + pieces[1] * (box.width - 2) + end, role, box.width)
        room = box.width - 4
        self.write(
            box.left + 1, box.top, f" {shortened(item.name, room)} ", "title" if box.column == 1 else "name"
        )
        if item.where:
            text = f" {shortened(item.where, room)} "
            self.write(right - len(text), last, text, "place")
        if box.column == 1:
            for y, text, kind in (
                (1, item.what, "input" if item.is_input else "op"),
                (2, item.shape, "tensor"),
                (3, item.size, "dim"),
            ):
                self.write(box.left + 2, box.top + y, shortened(text, room), kind)
            return
        self._inside(box.left + 2, box.top + 1, room, item)
        if box.column == 0:
            self.put(right, box.middle, "├", role)

    def _one_row(self, box: Box) -> None:
        item, blank = box.item, 1 if box.column else 0
        name = f"● {item.name}" if box.column == 1 else item.name
        name += f" ({item.where.split(' ')[0]})" if item.across else ""
        shown = shortened(name, box.width - blank)
        self.write(box.left + blank, box.middle, shown, "title" if box.column == 1 else "name")
        used, room = blank + len(shown), box.width - blank - len(shown) - 2
        if room > 2:
            self._inside(box.left + used + 2, box.middle, room, item)
            used += 2 + min(room, len(item.inside))
        if (box.left + box.width, box.middle) in self._lines:
            # The edge begins where the text ends.
            for x in range(box.left + used + 1, box.left + box.width):
                self.put(x, box.middle, "─", "dim")

    def _inside(self, x: int, y: int, room: int, item: Neighbour) -> None:
        """Draw the operator and, where there is room, the shape."""
        what = shortened(item.what, room)
        self.write(x, y, what, "input" if item.is_input else "op")
        if item.shape and (rest := room - len(what) - 2) > 4:
            self.write(x + len(what) + 2, y, shortened(item.shape, rest), "tensor")

    def put(self, x: int, y: int, char: str, role: str) -> None:
        if 0 <= y < len(self._cells) and 0 <= x < len(self._cells[y]):
            self._cells[y][x] = (char, role)

    def write(self, x: int, y: int, text: str, role: str, most: int = WIDEST) -> None:
        for offset, char in enumerate(text[:most]):
            self.put(x + offset, y, char, role)

    def rows(self) -> tuple[tuple[Part, ...], ...]:
        return tuple(tuple(joined(row)) for row in self._cells)

    def _across(self, first: int, last: int, y: int) -> None:
        for x in range(first, last + 1):
            self._lines[x, y] |= LEFT | RIGHT

    def _down(self, x: int, start: int, end: int) -> None:
        step = 1 if end > start else -1
        for y in range(start, end, step):
            self._lines[x, y] |= DOWN if step > 0 else UP
            self._lines[x, y + step] |= UP if step > 0 else DOWN


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
