"""A stage's program as a table of nodes, and the neighbourhood of one node."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from aotlens.report.certificates import reason_text
from aotlens.report.records import Stage, StageNode, Target
from aotlens.report.summary import call_count, human_bytes
from tui.view.places import home_file, line_place, place
from tui.view.rows import Cells, Column, Jump, LazyRows, Line, Link, Listing, Part

NODE_COLUMNS = (
    Column("node", widest=32, narrowest=12, grows=True),
    Column("operation", widest=34, narrowest=14),
    Column("tensor", widest=24, narrowest=10, drop=1),
    Column("size", widest=9, narrowest=8, align="right", drop=2),
    Column("line", widest=16, narrowest=4, align="right"),
)
MOST_NEIGHBOURS = 12
"""Inputs and users listed before the rest is counted."""


def all_stages(target: Target) -> tuple[Stage, ...]:
    """Every stage with its nodes; one that changes nothing has those of the stage it is the same as."""
    found = (target.stage(stage.name) for stage in target.stages)
    return tuple(stage for stage in found if stage is not None)


def stage_title(stage: Stage) -> str:
    """`joint 12`; `decomposed =` for a stage that changes nothing."""
    return f"{stage.name} {call_count(stage) if stage.same_as is None else '='}"


class StageIndex:
    """One stage with what is looked up in it; each part is built when first needed."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @cached_property
    def positions(self) -> dict[str, int]:
        return {node.name: position for position, node in enumerate(self.stage.nodes)}

    def users(self, name: str) -> tuple[str, ...]:
        """Nodes that read it, in order; a scan, which at 50,000 nodes costs less than keeping an index."""
        return tuple(node.name for node in self.stage.nodes if name in node.inputs)

    @cached_property
    def heirs(self) -> dict[str, str]:
        """The first node of this stage that came from each node of the parent stage."""
        found: dict[str, str] = {}
        for node in self.stage.nodes:
            for name in node.from_:
                found.setdefault(name, node.name)
        return found

    def node(self, name: str) -> StageNode | None:
        position = self.positions.get(name)
        return None if position is None else self.stage.nodes[position]


def operation(node: StageNode) -> Part:
    """`aten.mm`, `input up.weight`, `output`; the default overload goes without saying."""
    if node.op == "placeholder":
        return Part(node.target, "input")
    if node.op == "output":
        return Part("output", "input")
    return Part(node.target.removesuffix(".default"), "op")


def node_link(node: StageNode) -> Link:
    """The innermost expression, and the calls around it."""
    return Link(node.spans[:1], node.spans[1:])


def node_cells(node: StageNode, home: str | None) -> Cells:
    return (
        Part(node.name, "name"),
        operation(node),
        Part(node.tensor.short() if node.tensor else "", "tensor"),
        human_bytes(node.tensor.bytes) if node.tensor else "",
        Part(place(node.spans[0] if node.spans else None, home), "place"),
    )


def node_listing(stage: Stage, target: Target) -> Listing:
    """Every node of one stage, in program order."""
    home = home_file(target)

    def text(node: StageNode) -> str:
        return f"{node.name} {node.target} {node.tensor.short() if node.tensor else ''}"

    rows = LazyRows(stage.nodes, lambda node: node.name, lambda node: node_cells(node, home), text, node_link)
    return Listing(NODE_COLUMNS, rows, "this stage has no nodes")


def neighbourhood(name: str, index: StageIndex, target: Target) -> Iterator[Line]:
    """The node between what it reads (above) and what reads it (below); Enter walks along."""
    node = index.node(name)
    if node is None:
        return
    inputs = tuple(dict.fromkeys(node.inputs))
    users = index.users(name)
    yield from branch_lines(inputs, index, target, READ)
    yield centre_line(node, target)
    yield from branch_lines(users, index, target, USERS)
    yield from fact_lines(node, index, target)


@dataclass(frozen=True, slots=True)
class Branch:
    """How one side of the node is drawn."""

    first: str
    """The corner of the first line; below the node the curve has begun already."""
    between: str
    last: str
    more: str
    """What the neighbours that are not listed are called."""


READ = Branch("╭", "├", "├", "more are read")
USERS = Branch("├", "├", "╰", "more users")


def branch_lines(names: tuple[str, ...], index: StageIndex, target: Target, branch: Branch) -> Iterator[Line]:
    """One line a neighbour; the curve starts above the node and ends below it."""
    shown, hidden = names[:MOST_NEIGHBOURS], len(names) - MOST_NEIGHBOURS
    for position, name in enumerate(shown):
        at_end = position == len(shown) - 1 and hidden <= 0
        corner = branch.last if at_end else branch.between
        if position == 0 and branch is READ:
            corner = branch.first
        neighbour = index.node(name)
        if neighbour is not None:
            yield neighbour_line(corner, neighbour, target)
    if hidden > 0:
        yield Line((Part(f" {branch.last} … {hidden} {branch.more}", "dim"),))


def neighbour_line(corner: str, node: StageNode, target: Target) -> Line:
    where = line_place(node.spans[0] if node.spans else None, home_file(target))
    parts = (
        Part(f" {corner} ", "dim"),
        Part(f"{node.name:<18} ", "name"),
        operation(node),
        Part(f"  {node.tensor.short()}" if node.tensor else "", "tensor"),
        Part(f"  {where}" if where else "", "place"),
    )
    return Line(parts, node_link(node), Jump("graphs", node.name))


def centre_line(node: StageNode, target: Target) -> Line:
    where = line_place(node.spans[0] if node.spans else None, home_file(target))
    shown = operation(node)
    parts = (
        Part(" ● ", "accent"),
        Part(f"{node.name:<18} ", "title"),
        Part(shown.text, shown.role),
        Part(f"  {node.tensor.short()}" if node.tensor else "", "tensor"),
        Part(f"  {where}" if where else "", "place"),
    )
    return Line(parts, node_link(node))


def fact_lines(node: StageNode, index: StageIndex, target: Target) -> Iterator[Line]:
    """Memory, fate at the partition, origin and reason."""
    if node.tensor is not None:
        strides = ", ".join(str(step) for step in node.tensor.stride)
        text = f"   {human_bytes(node.tensor.bytes)} · strides ({strides}) · {node.tensor.device}"
        yield Line((Part(text, "dim"),))
    for saved in target.partition.saved if target.partition else ():
        if saved.node == node.name and index.stage.name in ("joint", "forward", "backward"):
            parts = (Part("   saved  ", "saved"), Part(f"{human_bytes(saved.bytes)}, {reason_text(saved)}"))
            yield Line(parts, jump=Jump("saved", f"saved:{saved.node}"), wrap=True)
    for again in target.partition.recomputed if target.partition else ():
        if again.node == node.name and index.stage.name in ("joint", "forward", "backward"):
            parts = (
                Part("   recomputed  ", "accent"),
                Part(f"instead of {human_bytes(again.bytes)}, {reason_text(again)}"),
            )
            yield Line(parts, jump=Jump("saved", f"recomputed:{again.node}"), wrap=True)
            other = {"forward": "backward", "backward": "forward"}.get(index.stage.name)
            if other is not None and again.in_forward:
                twin = Part("   twin  ", "dim"), Part(again.node, "name"), Part(f" in the {other}", "dim")
                yield Line(twin, jump=Jump("graphs", f"{other}/{again.node}"))
    if node.reason:
        yield Line((Part("   why  ", "dim"), Part(node.reason)), wrap=True)
    if node.from_ and index.stage.parent:
        yield Line(
            (Part(f"   from {index.stage.parent}  ", "dim"), Part(", ".join(node.from_), "name")), wrap=True
        )
    for outer in node.spans[1:4]:
        text = f"   called from {line_place(outer, home_file(target))}"
        yield Line((Part(text, "place"),), Link((outer,)))


def counterpart(name: str, old: StageIndex, new: StageIndex) -> str | None:
    """The same computation in another stage: its ancestor, its heir, or the node of the same name."""
    node = old.node(name)
    if node is not None and old.stage.parent == new.stage.name:
        return next((origin for origin in node.from_ if origin in new.positions), None)
    if new.stage.parent == old.stage.name and name in new.heirs:
        return new.heirs[name]
    return name if name in new.positions else None
