"""The neighbours of a node: its inputs, its users, theirs, and its counterparts in the other graph.

Invariant: the work depends on the size of the drawing, never on the number of nodes: a hop is expanded only
where its boxes are shown.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from aotlens.model.report import StageNode, Target
from aotlens.model.spans import line_text
from aotlens.view.fold import fold
from aotlens.view.names import bare_op
from aotlens.view.quantities import human_bytes
from aotlens.view.tabs.drawn_graph.drawing import GAP, TALL, Drawing, Edge, Neighbour, draw, natural_width
from aotlens.view.tabs.drawn_graph.graph import StageIndex, node_link, partition_index
from aotlens.view.tabs.drawn_graph.layers import counterpart_key
from aotlens.view.tabs.tables.rows import Jump

MOST = 8
"""Neighbours drawn on one side before the rest is counted."""
MOST_HOPS = 4
READABLE = 24
"""A column this wide can be read; further hops are drawn while each column has it, or needs less."""
KINDS = {"placeholder": "input", "output": "the outputs", "get_attr": "constant"}

Key = tuple[str, str]
"""A graph and a node of it."""


@dataclass(frozen=True, slots=True)
class _Boxed:
    """One box: a node, or the same node of several layers."""

    item: Neighbour
    members: tuple[Key, ...] = ()
    """Its nodes; none for a count of further neighbours."""


class Neighbourhood:
    """Draws any node of one graph; `other` is the graph on the other side of the partition."""

    def __init__(self, target: Target, index: StageIndex, other: StageIndex | None) -> None:
        self._target = target
        self._stage = index.stage.name
        self._indices = {self._stage: index}
        if other is not None and self._stage in ("forward", "backward"):
            self._indices[other.stage.name] = other

    def drawing(self, name: str, size: tuple[int, int], *, unfolded: bool = False) -> Drawing:
        """Return the node between its neighbours; empty for an unknown name.

        Further hops are drawn where there is room; identical layers share a box unless `unfolded`.
        """
        node = self._indices[self._stage].node(name)
        if node is None:
            return Drawing()
        grown = _Grown(self, size, (self._stage, name), unfolded)
        return draw(grown.columns(), grown.edges(), size)

    def node(self, key: Key) -> StageNode | None:
        index = self._indices.get(key[0])
        return index.node(key[1]) if index is not None else None

    def inputs(self, key: Key) -> tuple[Key, ...]:
        """Return what a node reads: where a saved value comes from first, then its own graph's nodes."""
        stage = key[0]
        node = self.node(key)
        if node is None:
            return ()
        before: tuple[Key, ...] = ()
        if stage == "backward" and node.op == "placeholder" and self._target.partition is not None:
            before = tuple(("forward", origin) for origin in node.from_ if self.node(("forward", origin)))
        return (*before, *((stage, origin) for origin in dict.fromkeys(node.inputs)))

    def users(self, key: Key) -> tuple[Key, ...]:
        """Return the nodes that read it, and those of the backward that read it as a saved value."""
        stage, name = key
        index, partition = self._indices.get(stage), self._target.partition
        if index is None:
            return ()
        after: tuple[Key, ...] = ()
        if stage == "forward" and partition is not None:
            saved = partition_index(partition).saved.get(name)
            uses = [use.node for use in saved[0].used_by] if saved else []
            after = tuple(("backward", use) for use in uses if self.node(("backward", use)))
        return (*((stage, user) for user in index.users(name)), *after)

    def words(self, key: Key, *, is_centre: bool = False) -> Neighbour:
        stage, name = key
        node = self.node(key)
        if node is None:
            return Neighbour(name, "", key=f"{stage}/{name}")
        tensor, graph = node.tensor, stage if stage != self._stage else ""
        where = line_text(node.spans[0] if node.spans else None, self._target.file)
        return Neighbour(
            name=node.name,
            what=KINDS.get(node.op) or bare_op(node.target),
            shape=tensor.short() if tensor else "",
            where=" · ".join(text for text in (graph, where) if text),
            size=human_bytes(tensor.bytes) if tensor else "",
            link=node_link(node),
            jump=None if is_centre else Jump("graphs", f"{stage}/{name}"),
            is_input=node.op in KINDS,
            across=bool(graph),
            key=f"{stage}/{name}",
        )

    def boxed(self, keys: Sequence[Key], unfolded: bool) -> list[_Boxed]:
        """Return the boxes of these nodes; those that differ only in their layer share one."""
        if unfolded:
            return [_Boxed(self.words(key), (key,)) for key in keys]
        seen: Counter[Hashable] = Counter()
        marked: list[tuple[Key, str, Hashable]] = []
        for key in keys:
            node = self.node(key)
            if node is None or not node.layer:
                marked.append((key, "", key))
                continue
            kind = counterpart_key(node)
            seen[node.layer, kind] += 1
            marked.append((key, node.layer, (kind, seen[node.layer, kind])))
        boxes = []
        for group in fold(marked, lambda item: item[1], lambda item: item[2]):
            item = self.words(group.first[0])
            if group.times:
                item = replace(item, name=f"{group.times} {item.name}")
            boxes.append(_Boxed(item, tuple(key for key, _, _ in group.items)))
        return boxes


class _Grown:
    """The columns of one drawing, grown hop by hop while there is room."""

    def __init__(self, graph: Neighbourhood, size: tuple[int, int], centre: Key, unfolded: bool) -> None:
        self._graph = graph
        self._width, height = size
        self._most = max(2, height // TALL)
        self._unfolded = unfolded
        self._boxes = {0: [_Boxed(graph.words(centre, is_centre=True), (centre,))]}
        self._seen = {centre}
        for step in (-1, 1):
            self._grow(step)
        for hop in range(2, MOST_HOPS + 1):
            for step in (-hop, hop):
                if step - (1 if step > 0 else -1) in self._boxes:
                    self._grow(step)

    def columns(self) -> dict[int, tuple[Neighbour, ...]]:
        return {column: tuple(box.item for box in boxes) for column, boxes in self._boxes.items()}

    def _grow(self, column: int) -> None:
        """Add a column, unless a further hop has no room."""
        step = 1 if column > 0 else -1
        direct = column == step
        next_to = self._graph.users if step > 0 else self._graph.inputs
        inner = [member for box in self._boxes[column - step] for member in box.members]
        keys = dict.fromkeys(key for member in inner for key in next_to(member) if key not in self._seen)
        boxes = limited(
            self._graph.boxed(tuple(keys), self._unfolded), MOST if direct else self._most, column
        )
        if boxes and (direct or self._has_room({**self._boxes, column: boxes})):
            self._boxes[column] = boxes
            self._seen |= {member for box in boxes for member in box.members}

    def _has_room(self, boxes: dict[int, list[_Boxed]]) -> bool:
        items = ([box.item for box in column] for column in boxes.values())
        widths = (min(READABLE, natural_width(column)) for column in items)
        return sum(widths) + (GAP + 2) * (len(boxes) - 1) <= self._width

    def edges(self) -> frozenset[Edge]:
        """Return the edges between boxes of neighbouring columns."""
        edges: set[Edge] = set()
        for column, boxes in self._boxes.items():
            if column + 1 in self._boxes:
                edges |= set(self._between(boxes, self._boxes[column + 1]))
        return frozenset(edges)

    def _between(self, first: Iterable[_Boxed], second: Sequence[_Boxed]) -> Iterable[Edge]:
        for box in first:
            reads = {user for member in box.members for user in self._graph.users(member)}
            for other in second:
                sources = {origin for member in other.members for origin in self._graph.inputs(member)}
                # A box that counts further neighbours is one of the node itself.
                counts = not box.members or not other.members
                joined = not reads.isdisjoint(other.members) or not sources.isdisjoint(box.members)
                if joined or (counts and (len(second) == 1 or box is self._boxes[0][0])):
                    yield box.item.id, other.item.id


def limited(boxes: list[_Boxed], most: int, column: int) -> list[_Boxed]:
    """Return the first boxes; a last one counts the others."""
    if len(boxes) <= most:
        return boxes
    rest = Neighbour(f"{len(boxes) - most + 1} more", "", key=f"more:{column}")
    return [*boxes[: most - 1], _Boxed(rest)]
