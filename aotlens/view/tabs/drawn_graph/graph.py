"""A stage's program as a table of nodes, and the details of one node."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from aotlens.model.report import Partition, RecomputedValue, SavedValue, Stage, StageNode, Target
from aotlens.model.spans import line_of, line_text
from aotlens.view.names import without_default
from aotlens.view.partition.reasons import reason_text
from aotlens.view.quantities import call_count, human_bytes
from aotlens.view.tabs.drawn_graph.layers import over_layers
from aotlens.view.tabs.tables.rows import Cells, Column, Jump, LazyRows, Line, Link, Listing, Part, size_part

NODE_COLUMNS = (
    Column("node", widest=32, narrowest=14, grows=True),
    Column("operation", widest=34, narrowest=10, drop=1),
    Column("tensor", widest=18, narrowest=16, drop=2),
    Column("size", widest=9, narrowest=9, align="right", drop=3, largest_first=True),
    Column("line", widest=40, narrowest=4, align="right"),
)

PARTITIONED = ("joint", "forward", "backward")
"""Stages whose nodes a partition saves or recomputes."""


def all_stages(target: Target) -> tuple[Stage, ...]:
    """Return every stage with its nodes; a stage that changes nothing has the nodes of its parent."""
    stages = (target.stage(stage.name) for stage in target.stages)
    return tuple(stage for stage in stages if stage is not None)


def stage_title(stage: Stage) -> str:
    """Return `joint 12`; `decomposed =` for a stage that changes nothing."""
    return f"{stage.name} {call_count(stage) if stage.same_as is None else '='}"


class StageIndex:
    """One stage with its lookup tables; each is built when it is first needed."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @cached_property
    def positions(self) -> dict[str, int]:
        return {node.name: position for position, node in enumerate(self.stage.nodes)}

    @cached_property
    def _readers(self) -> dict[str, list[str]]:
        readers: dict[str, list[str]] = {}
        for node in self.stage.nodes:
            for name in dict.fromkeys(node.inputs):
                readers.setdefault(name, []).append(node.name)
        return readers

    def users(self, name: str) -> tuple[str, ...]:
        """Return the nodes that read it, in order."""
        return tuple(self._readers.get(name, ()))

    def node(self, name: str) -> StageNode | None:
        position = self.positions.get(name)
        return None if position is None else self.stage.nodes[position]


class PartitionIndex:
    """One partition with its saved and recomputed values by node."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.saved: dict[str, list[SavedValue]] = {}
        self.recomputed: dict[str, list[RecomputedValue]] = {}
        for saved in partition.saved:
            self.saved.setdefault(saved.node, []).append(saved)
        for again in partition.recomputed:
            self.recomputed.setdefault(again.node, []).append(again)


_newest: list[PartitionIndex] = []


def partition_index(partition: Partition | None) -> PartitionIndex:
    """Return the index of a partition; the newest is cached, since every key press reads it."""
    if partition is None:
        return PartitionIndex(Partition("", (), (), 0))
    if not _newest or _newest[0].partition is not partition:
        _newest[:] = [PartitionIndex(partition)]
    return _newest[0]


def first_operator(stage: Stage) -> int:
    """Return the position of the first operator, after the inputs."""
    return next((index for index, node in enumerate(stage.nodes) if node.op == "call_function"), 0)


def operation(node: StageNode) -> Part:
    """Return `aten.mm`, `input up.weight`, `output`; the default overload has no suffix."""
    if node.op == "placeholder":
        return Part(node.target, "input")
    if node.op == "output":
        return Part("output", "input")
    return Part(without_default(node.target), "op")


def node_link(node: StageNode) -> Link:
    """Return the innermost expression, and the calls around it."""
    return Link(node.spans[:1], node.spans[1:])


def node_cells(node: StageNode, home: str | None) -> Cells:
    return (
        Part(node.name, "name"),
        operation(node),
        Part(node.tensor.short() if node.tensor else "", "tensor"),
        size_part(node.tensor.bytes) if node.tensor else "",
        Part(line_of(node.spans[0] if node.spans else None, home), "place"),
    )


def node_listing(stage: Stage, target: Target, title: str = "node") -> Listing:
    """Every node of one stage, in program order, identical layers folded."""
    home = target.file

    def text(node: StageNode) -> str:
        return f"{node.name} {node.target} {node.tensor.short() if node.tensor else ''}"

    rows = LazyRows(stage.nodes, lambda node: node.name, lambda node: node_cells(node, home), text, node_link)
    columns = (replace(NODE_COLUMNS[0], title=title), *NODE_COLUMNS[1:])
    return over_layers(Listing(columns, rows, "this stage has no nodes"), stage.nodes)


def title_line(node: StageNode, target: Target) -> Line:
    """Return the node in one line: name, operator, tensor, strides."""
    shown = operation(node)
    parts = [Part(" ● ", "accent"), Part(f"{node.name}  ", "title"), Part(shown.text, shown.role)]
    if node.tensor is not None:
        strides = ", ".join(str(step) for step in node.tensor.stride)
        size = f"  {human_bytes(node.tensor.bytes)} · strides ({strides}) · {node.tensor.device}"
        parts += [Part(f"  {node.tensor.short()}", "tensor"), Part(size, "dim")]
    where = line_text(node.spans[0] if node.spans else None, target.file)
    return Line((*parts, Part(f"  {where}" if where else "", "place")), node_link(node), wrap=True)


def fact_lines(node: StageNode, index: StageIndex, target: Target) -> Iterator[Line]:
    """Yield the node in one line, its fate at the partition, its origin and reason."""
    yield title_line(node, target)
    if index.stage.name in PARTITIONED:
        yield from fate_lines(node.name, index.stage.name, partition_index(target.partition))
    if node.reason:
        yield Line((Part("   why  ", "dim"), Part(node.reason)), wrap=True)
    if node.from_ and index.stage.parent:
        parts = (Part("   from  ", "dim"), Part(", ".join(node.from_[:4]), "name"))
        stages = Part(f" in {index.stage.parent}: through the stages", "dim")
        yield Line((*parts, stages), jump=Jump("stages", f"{index.stage.name}/{node.name}"), wrap=True)
    for outer in node.spans[1:4]:
        text = f"   called from {line_text(outer, target.file)}"
        yield Line((Part(text, "place"),), Link((outer,)))


def fate_lines(name: str, stage: str, partition: PartitionIndex) -> Iterator[Line]:
    """Yield why a node is saved or recomputed; one that both graphs run leads to its counterpart."""
    for saved in partition.saved.get(name, ()):
        parts = (Part("   saved  ", "saved"), Part(f"{human_bytes(saved.bytes)}, {reason_text(saved)}"))
        yield Line(parts, jump=Jump("saved", f"saved:{saved.node}"), wrap=True)
    other = {"forward": "backward", "backward": "forward"}.get(stage)
    for again in partition.recomputed.get(name, ()):
        parts = (
            Part("   recomputed  ", "accent"),
            Part(f"instead of {human_bytes(again.bytes)}, {reason_text(again)}"),
        )
        yield Line(parts, jump=Jump("saved", f"recomputed:{again.node}"), wrap=True)
        if other is not None and again.in_forward:
            counterpart = (
                Part("   counterpart  ", "dim"),
                Part(again.node, "name"),
                Part(f" in the {other}", "dim"),
            )
            yield Line(counterpart, jump=Jump("graphs", f"{other}/{again.node}"))
