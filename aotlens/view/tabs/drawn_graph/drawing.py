"""A node drawn between its inputs (left) and its users (right), over as many hops as there is room for.

Invariant: the drawing has exactly the requested width; text that does not fit is cut inside its box. Each
edge joins boxes of neighbouring columns, and edges that have no box in common never share a lane.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from aotlens.view.shorten import shortened
from aotlens.view.tabs.drawn_graph.canvas import Canvas, Net, Wire, in_lanes
from aotlens.view.tabs.tables.rows import NO_LINK, Jump, Link, Part

GAP = 4
"""Cells between two columns of boxes beside the lanes: the edge, the lines to and from a lane, the arrow."""
WIDEST = 44
NARROWEST = 9
TALL = 3
"""Rows of a neighbour's box."""
CENTRE = 5
ENOUGH_ROWS = 9
"""From this height on neighbours have boxes; below it each takes one row."""


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
    key: str = ""
    """What edges call it; the name, unless nodes of two graphs have one name."""

    @property
    def inside(self) -> str:
        return f"{self.what}  {self.shape}".rstrip()

    @property
    def id(self) -> str:
        return self.key or self.name


Edge = tuple[str, str]
"""The ids of a node and of one that reads it."""
Columns = Mapping[int, Sequence[Neighbour]]
"""The nodes of each column: 0 has the node itself, -1 its inputs, -2 their inputs, 1 its users."""


@dataclass(frozen=True, slots=True)
class Box:
    """A neighbour with its position."""

    item: Neighbour
    column: int
    """0 for the node itself, negative for inputs, positive for users."""
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
    edges: frozenset[Edge] = frozenset()

    @property
    def centre(self) -> int:
        """Return the box of the node itself."""
        return next((index for index, box in enumerate(self.boxes) if box.column == 0), 0)

    def beside(self, index: int, step: int) -> int | None:
        """Return the box that an edge to the left (-1) or right (1) leads to, operators first, then the
        nearest; None without one."""
        box = self.boxes[index]
        joined = [
            other
            for other, candidate in enumerate(self.boxes)
            if candidate.column == box.column + step and self._are_joined(box, candidate)
        ]

        def preference(other: int) -> tuple[bool, int]:
            return self.boxes[other].item.is_input, abs(self.boxes[other].middle - box.middle)

        return min(joined, key=preference, default=None)

    def above(self, index: int, step: int) -> int:
        """Return the box above (-1) or below (1) in its column; itself at the end."""
        order = [i for i, other in enumerate(self.boxes) if other.column == self.boxes[index].column]
        return order[max(0, min(len(order) - 1, order.index(index) + step))]

    def _are_joined(self, first: Box, second: Box) -> bool:
        ids = first.item.id, second.item.id
        return ids in self.edges or ids[::-1] in self.edges


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the boxes of each column are, in so many rows."""

    columns: Columns
    height: int

    @property
    def is_tall(self) -> bool:
        return self.height >= ENOUGH_ROWS

    def box_height(self, column: int) -> int:
        return (CENTRE if column == 0 else TALL) if self.is_tall else 1

    def tops(self, column: int) -> tuple[int, ...]:
        """Return the first row of each box: centred in the visible part, or from the top if they are more."""
        number, high = len(self.columns[column]), self.box_height(column)
        top = max(0, (self.height - high * number) // 2)
        return tuple(top + index * high for index in range(number))

    def middles(self, column: int) -> dict[str, int]:
        """Return the row of each box in which its edges begin and end, by node."""
        half = self.box_height(column) // 2
        tops = self.tops(column)
        return {item.id: top + half for item, top in zip(self.columns[column], tops, strict=True)}

    def nets(self, column: int, edges: Collection[Edge]) -> tuple[Net, ...]:
        """Return the edges between a column and the next one; those of one net share a lane.

        Left of the node a net has the edges into one box, right of it those out of one box.
        """
        starts, ends = self.middles(column), self.middles(column + 1)
        nets: dict[str, list[Wire]] = {}
        for first in self.columns[column]:
            for second in self.columns[column + 1]:
                if (first.id, second.id) in edges:
                    wire = Wire(starts[first.id], ends[second.id], first.across != second.across)
                    nets.setdefault(second.id if column < 0 else first.id, []).append(wire)
        return in_lanes(tuple(map(tuple, nets.values())))


def draw(columns: Columns, edges: Collection[Edge], size: tuple[int, int]) -> Drawing:
    """Return the drawing in so many columns and, if possible, rows."""
    width, height = size
    layout = _Layout(columns, height)
    order = sorted(columns)
    nets = {column: layout.nets(column, edges) for column in order[:-1]}
    gaps = {column: GAP + max((net.lane + 1 for net in own), default=1) for column, own in nets.items()}
    widths = column_widths(columns, width - sum(gaps.values()))
    rows = max(height, *(len(items) * layout.box_height(column) for column, items in columns.items()))
    canvas, boxes, left = Canvas(width, rows), list[Box](), 0
    for column in order:
        wide, high = widths[column], layout.box_height(column)
        tops = layout.tops(column)
        boxes += (
            Box(item, column, left, top, wide, high) for item, top in zip(columns[column], tops, strict=True)
        )
        for net in nets.get(column, ()):
            canvas.edge(net, left + wide, left + wide + gaps[column])
        left += wide + gaps.get(column, 0)
    canvas.draw_edges()
    for box in boxes:
        _draw_box(canvas, box)
    return Drawing(canvas.rows(), tuple(boxes), frozenset(edges))


def column_widths(columns: Columns, room: int) -> dict[int, int]:
    """Each as wide as its widest box, the widest cut until all fit."""
    natural = {column: natural_width(items) for column, items in columns.items()}
    while sum(natural.values()) > room and max(natural.values()) > NARROWEST:
        natural[max(natural, key=lambda column: natural[column])] -= 1
    return natural


def natural_width(items: Sequence[Neighbour]) -> int:
    return max((min(WIDEST, max(len(item.name), len(item.inside)) + 4) for item in items), default=0)


def _draw_box(canvas: Canvas, box: Box) -> None:
    if box.height == 1:
        _draw_row(canvas, box)
        return
    item, role = box.item, "accent" if box.column == 0 else "saved" if box.item.across else "dim"
    pieces = "┏━┓┃┗┛" if box.column == 0 else "╭╌╮╎╰╯" if item.across else "╭─╮│╰╯"
    last, right = box.top + box.height - 1, box.left + box.width - 1
    for y in range(box.top + 1, last):
        canvas.put(box.left, y, pieces[3], role)
        canvas.put(right, y, pieces[3], role)
    for y, first, end in ((box.top, pieces[0], pieces[2]), (last, pieces[4], pieces[5])):
        canvas.write(box.left, y, first + pieces[1] * (box.width - 2) + end, role, box.width)
    room = box.width - 4
    canvas.write(
        box.left + 1, box.top, f" {shortened(item.name, room)} ", "title" if box.column == 0 else "name"
    )
    if item.where:
        text = f" {shortened(item.where, room)} "
        canvas.write(right - len(text), last, text, "place")
    if box.column == 0:
        for y, text, kind in (
            (1, item.what, "input" if item.is_input else "op"),
            (2, item.shape, "tensor"),
            (3, item.size, "dim"),
        ):
            canvas.write(box.left + 2, box.top + y, shortened(text, room), kind)
        return
    _draw_inside(canvas, (box.left + 2, box.top + 1), room, item)
    if canvas.has_line(right + 1, box.middle):
        canvas.put(right, box.middle, "├", role)


def _draw_row(canvas: Canvas, box: Box) -> None:
    """Draw a box that has one row: its text without a border, then the edge up to the next column."""
    item, blank = box.item, 1 if box.left else 0
    name = f"● {item.name}" if box.column == 0 else item.name
    name += f" ({item.where.split(' ')[0]})" if item.across else ""
    shown = shortened(name, box.width - blank)
    canvas.write(box.left + blank, box.middle, shown, "title" if box.column == 0 else "name")
    used, room = blank + len(shown), box.width - blank - len(shown) - 2
    if room > 2:
        _draw_inside(canvas, (box.left + used + 2, box.middle), room, item)
        used += 2 + min(room, len(item.inside))
    if canvas.has_line(box.left + box.width, box.middle):
        # The edge begins where the text ends.
        for x in range(box.left + used + 1, box.left + box.width):
            canvas.put(x, box.middle, "─", "dim")


def _draw_inside(canvas: Canvas, position: tuple[int, int], room: int, item: Neighbour) -> None:
    """Draw the operator and, where there is room, the shape."""
    x, y = position
    what = shortened(item.what, room)
    canvas.write(x, y, what, "input" if item.is_input else "op")
    if item.shape and (rest := room - len(what) - 2) > 4:
        canvas.write(x + len(what) + 2, y, shortened(item.shape, rest), "tensor")
