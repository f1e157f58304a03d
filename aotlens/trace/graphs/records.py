"""The records of a graph that is read from a log.  Stdlib only."""

import re
from dataclasses import dataclass

__all__ = ["Argument", "Graph", "GraphNode", "Line", "Result", "base_slot"]

_SUBCLASS = re.compile(r"SubclassGetAttrAOT(?:Input|Output)\(base=(.{1,4000}), attr='(\w{1,200})'\)")


def base_slot(slot: str) -> tuple[str, tuple[str, ...]]:
    """Return the slot of the tensor that the user sees, and the attributes that lead to the inner tensor.

    `SubclassGetAttrAOTInput(base=PlainAOTInput(idx=0), attr='_local_tensor')` is the local part of a DTensor.
    """
    attributes: tuple[str, ...] = ()
    while match := _SUBCLASS.fullmatch(slot):
        slot, attributes = match[1], (match[2], *attributes)
    return slot, attributes


@dataclass(frozen=True, slots=True)
class Line:
    """The innermost user line that torch recorded for a node."""

    file: str
    """On the machine that wrote the log."""
    line: int
    function: str
    code: str
    """The line's text when it was compiled."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One input of a graph."""

    name: str
    type: str
    """`f32[8, 16][16, 1]cpu`: dtype, sizes, strides, device; empty where none is printed."""
    slot: str
    """torch's description of it, `ParamAOTInput(idx=0)`; empty in graphs of Dynamo and of older torch."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One assignment of the printed program."""

    name: str
    op: str
    """`call_function` or `get_attr`."""
    target: str
    """`aten.mm.default`, `torch.nn.functional.gelu`, `getitem[1]`, `Tensor.add_`."""
    inputs: tuple[str, ...]
    """Nodes and arguments that it reads, in order."""
    type: str
    expression: str
    """The expression as torch printed it."""
    line: Line | None
    """None if torch has no line for it, because a pass added it."""
    region: str = ""
    """Its activation checkpoint and policy: `4 - PREFER_RECOMPUTE`."""


@dataclass(frozen=True, slots=True)
class Result:
    """One output of a graph."""

    name: str
    """The node's or argument's name; `None` or a number for a constant."""
    slot: str


@dataclass(frozen=True, slots=True)
class Graph:
    """One printed class: its arguments, nodes in order, and results."""

    name: str
    arguments: tuple[Argument, ...]
    nodes: tuple[GraphNode, ...]
    results: tuple[Result, ...]
    subgraphs: tuple["Graph", ...] = ()
    """Subgraphs of higher-order operators, printed after the main graph."""
    unparsed_lines: tuple[str, ...] = ()
    """Lines that are no plain expression and were not understood."""

    def node(self, name: str) -> GraphNode | None:
        return next((node for node in self.nodes if node.name == name), None)

    def argument(self, name: str) -> Argument | None:
        return next((argument for argument in self.arguments if argument.name == name), None)
