"""Nodes of identical layers as one row: the same operators on the same lines, in the same order.

Invariant: each node costs one table lookup, since programs have tens of thousands of them.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from aotlens.model.report import StageNode
from aotlens.view.names import without_number
from aotlens.view.tabs.tables.rows import Cells, Column, Group, Link, Listing, Part, Rows, grouped

LAYER_COLUMN = Column("layer", widest=16, narrowest=14)
"""`×12 blocks.0–11` for a fold. The count comes first and is always visible; without it the row would look
like one node."""


@dataclass(frozen=True, slots=True)
class LayeredRows:
    """Rows of nodes with the layer of each in a column."""

    rows: Rows
    nodes: Sequence[StageNode]
    column: int
    """The position of the column."""

    def __len__(self) -> int:
        return len(self.rows)

    def key(self, index: int) -> str:
        return self.rows.key(index)

    def cells(self, index: int) -> Cells:
        return self.with_layer(self.rows.cells(index), Part(self.nodes[index].layer or "", "dim"))

    def text(self, index: int) -> str:
        return f"{self.rows.text(index)} {self.nodes[index].layer or ''}"

    def link(self, index: int) -> Link:
        return self.rows.link(index)

    def with_layer(self, cells: Cells, layer: Part) -> Cells:
        return (*cells[: self.column], layer, *cells[self.column :])


def over_layers(
    listing: Listing,
    nodes: Sequence[StageNode],
    column: int = 0,
    shown: Callable[[int], Hashable] = lambda _: None,
) -> Listing:
    """Return a table of nodes with identical layers folded and a column of layers; unchanged without layers.

    `shown` returns what a row shows beside operator, tensor and line. A fold has the cells of the listing's
    `group_cells`, else those of its first row.
    """
    if not any(node.layer for node in nodes):
        return listing
    rows, cells_of = LayeredRows(listing.rows, nodes, column), listing.group_cells

    def group_cells(group: Group) -> Cells:
        cells = cells_of(group) if cells_of is not None else listing.rows.cells(group.positions[0])
        return rows.with_layer(cells, Part(group.label, "accent"))

    columns = (*listing.columns[:column], LAYER_COLUMN, *listing.columns[column:])
    groups = _groups(nodes, shown)
    return replace(listing, columns=columns, rows=rows, groups=groups, group_cells=group_cells)


def _groups(nodes: Sequence[StageNode], shown: Callable[[int], Hashable]) -> tuple[Group, ...]:
    """Group equal rows across layers: the first of several in one layer goes with the first in the others."""
    same_as, rows = _Equal(), dict[Hashable, int]()
    counts: Counter[tuple[str, int]] = Counter()
    alike: list[tuple[int, int]] = []
    for index, node in enumerate(nodes):
        if node.layer is None:
            alike.append((-1, index))
            continue
        span = node.spans[0] if node.spans else None
        row = (kind_of(node), same_as.number(node.tensor), same_as.number(span), shown(index))
        kind = rows.setdefault(row, len(rows))
        times = counts[node.layer, kind]
        counts[node.layer, kind] = times + 1
        alike.append((kind, times))
    return grouped(range(len(nodes)), lambda index: nodes[index].layer or "", alike.__getitem__)


def kind_of(node: StageNode) -> str:
    """Return the operator; for an input, its name without layer and number."""
    if node.op != "placeholder" or node.layer is None:
        return node.target
    name = node.target.replace(node.layer, "", 1).replace(node.layer.replace(".", "_"), "", 1)
    return without_number(name)


def counterpart_key(node: StageNode) -> Hashable:
    """Return what a node shares with its counterparts in identical layers: operator, tensor and line."""
    return (kind_of(node), node.tensor, node.spans[:1])


class _Equal:
    """Numbers values so that equal values have equal numbers; values are compared once for each object.

    A report holds the same few tensors and locations thousands of times.
    """

    def __init__(self) -> None:
        self._by_object: dict[int, int] = {}
        self._by_value: dict[Hashable, int] = {}

    def number(self, value: Hashable) -> int:
        known = self._by_object.get(id(value))
        if known is None:
            known = self._by_value.setdefault(value, len(self._by_value))
            self._by_object[id(value)] = known
        return known
