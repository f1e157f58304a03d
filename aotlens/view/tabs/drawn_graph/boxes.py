"""The boxes of a drawn graph: layers, identical ones as one box, and lines where there are many nodes.

Invariant: every node is in at most one box of a level; nodes in none are drawn by themselves.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from aotlens.model.report import Stage, StageNode, Target
from aotlens.model.spans import line_text
from aotlens.view.fold import fold
from aotlens.view.quantities import counted, human_bytes
from aotlens.view.tabs.drawn_graph.graph import partition_index
from aotlens.view.tabs.drawn_graph.layers import counterpart_key

__all__ = ["MOST_NODES", "Box", "graph_boxes"]

MOST_NODES = 150
"""More nodes than this on one level are folded by source line."""
GRADIENT = " gradient"


@dataclass(frozen=True, slots=True)
class Box:
    """Nodes drawn as one box until it is opened."""

    label: str
    """`blocks.0–11 ×12`, `blocks.3 gradient`, `line 41`."""
    facts: str
    """`86 nodes, saves 4.0 MiB`."""
    positions: tuple[int, ...]
    """The positions of its nodes in the program, in order."""
    inner: tuple["Box", ...] = ()
    """The boxes that it opens to; nodes of none of them are drawn by themselves."""


def graph_boxes(stage: Stage, target: Target) -> tuple[Box, ...]:
    """Return the boxes of a stage's graph in program order: by layer, else by line where nodes are many."""
    return _Boxes(stage, target).all()


@dataclass(frozen=True, slots=True)
class _Boxes:
    stage: Stage
    target: Target

    def all(self) -> tuple[Box, ...]:
        layers: dict[str, list[int]] = {}
        outside: list[int] = []
        for position, node in enumerate(self.stage.nodes):
            if node.layer is None:
                outside.append(position)
            else:
                part = GRADIENT if node.is_of_gradient else ""
                layers.setdefault(f"{node.layer}{part}", []).append(position)
        boxes = (*self._layers(layers), *self._lines(outside))
        return tuple(sorted(boxes, key=lambda box: box.positions[0]))

    def _layers(self, layers: dict[str, list[int]]) -> Iterable[Box]:
        """Yield a box for each group of identical layers, which opens to one for each layer."""
        nodes = self.stage.nodes
        for group in fold(layers.items(), lambda item: f".{item[0]}", lambda item: _shape(nodes, item[1])):
            single = tuple(
                self._box(name, positions, self._lines(positions)) for name, positions in group.items
            )
            if len(single) == 1:
                yield single[0]
                continue
            together = sorted(position for box in single for position in box.positions)
            yield self._box(f"{group.label.removeprefix('.')} {group.times}", together, single)

    def _lines(self, positions: Sequence[int]) -> tuple[Box, ...]:
        """Return a box for each line with several nodes; empty while the nodes are few."""
        if len(positions) <= MOST_NODES:
            return ()
        lines: dict[str, list[int]] = {}
        for position in positions:
            node = self.stage.nodes[position]
            where = line_text(node.spans[0] if node.spans else None, self.target.file)
            if where:
                part = GRADIENT if node.is_of_gradient else ""
                lines.setdefault(f"{where}{part}", []).append(position)
        return tuple(self._box(label, members) for label, members in lines.items() if len(members) > 1)

    def _box(self, label: str, positions: Sequence[int], inner: tuple[Box, ...] = ()) -> Box:
        saved = (
            partition_index(self.target.partition).saved if self.stage.name in ("joint", "forward") else {}
        )
        names = (self.stage.nodes[position].name for position in positions)
        size = sum(value.bytes for name in names for value in saved.get(name, ()))
        facts = counted(len(positions), "node") + (f", saves {human_bytes(size)}" if size else "")
        return Box(label, facts, tuple(positions), inner)


def _shape(nodes: Sequence[StageNode], positions: Sequence[int]) -> Hashable:
    """Return what identical layers share: operators, tensors and lines, in order."""
    return tuple(counterpart_key(nodes[position]) for position in positions)
