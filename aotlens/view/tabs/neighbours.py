"""The neighbours of a node: its inputs, its users, and its counterparts in the other graph."""

from collections.abc import Sequence

from aotlens.model.report import StageNode, Target
from aotlens.model.spans import line_text
from aotlens.view.names import bare_op
from aotlens.view.quantities import human_bytes
from aotlens.view.tabs.drawing import Drawing, Neighbour, draw
from aotlens.view.tabs.graph import StageIndex, fates, node_link
from aotlens.view.tabs.rows import Jump

MOST = 8
"""Neighbours drawn on one side before the rest is counted."""
KINDS = {"placeholder": "input", "output": "the outputs", "get_attr": "constant"}


class Neighbourhood:
    """Draws any node of one graph; `other` is the graph on the other side of the partition."""

    def __init__(self, target: Target, index: StageIndex, other: StageIndex | None) -> None:
        self._target = target
        self._index = index
        self._other = other if index.stage.name in ("forward", "backward") else None

    def drawing(self, name: str, size: tuple[int, int]) -> Drawing:
        """Return the node between its neighbours; empty for an unknown name."""
        node = self._index.node(name)
        if node is None:
            return Drawing()
        read = [self._here(neighbour) for neighbour in dict.fromkeys(node.inputs)]
        users = [self._here(neighbour) for neighbour in self._index.users(name)]
        before, after = self._across(node)
        return draw(self._words(node), limited(before + read), limited(users + after), size)

    def _here(self, name: str) -> Neighbour:
        node = self._index.node(name)
        return (
            self._words(node, Jump("graphs", f"{self._index.stage.name}/{name}"))
            if node
            else unknown_neighbour(name)
        )

    def _across(self, node: StageNode) -> tuple[list[Neighbour], list[Neighbour]]:
        """Return where a saved value comes from, and its users in the backward."""
        other, partition = self._other, self._target.partition
        if other is None or partition is None:
            return [], []
        if self._index.stage.name == "forward":
            saved_values = fates(partition).saved.get(node.name)
            uses = saved_values[0].used_by if saved_values else ()
            return [], self._there(other, [use.node for use in uses])
        if node.op != "placeholder":
            return [], []
        return self._there(other, [name for name in node.from_ if other.node(name) is not None]), []

    def _there(self, other: StageIndex, names: Sequence[str]) -> list[Neighbour]:
        neighbours = []
        for name in names:
            node = other.node(name)
            if node is not None:
                neighbours.append(
                    self._words(node, Jump("graphs", f"{other.stage.name}/{name}"), other.stage.name)
                )
        return neighbours

    def _words(self, node: StageNode, jump: Jump | None = None, graph: str = "") -> Neighbour:
        tensor = node.tensor
        where = line_text(node.spans[0] if node.spans else None, self._target.file)
        return Neighbour(
            name=node.name,
            what=KINDS.get(node.op) or bare_op(node.target),
            shape=tensor.short() if tensor else "",
            where=" · ".join(text for text in (graph, where) if text),
            size=human_bytes(tensor.bytes) if tensor else "",
            link=node_link(node),
            jump=jump,
            is_input=node.op in KINDS,
            across=bool(graph),
        )


def unknown_neighbour(name: str) -> Neighbour:
    return Neighbour(name, "")


def limited(neighbours: list[Neighbour]) -> list[Neighbour]:
    """Return the first neighbours; a last box counts the others."""
    if len(neighbours) <= MOST:
        return neighbours
    return [*neighbours[: MOST - 1], Neighbour(f"{len(neighbours) - MOST + 1} more", "")]
