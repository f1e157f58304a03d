"""Saved values on which no gradient depends.

Invariant: no false alarm.  What the graph's structure shows holds for all numbers; what only numbers show was
seen with several draws, and is told as such.
"""

from typing import Any

from aotlens.ir.program import Node, nodes_in
from aotlens.joint.sizes_only import reads_only_sizes
from aotlens.partition.few_numbers import packet_name
from aotlens.partition.records import Partitioned

SIZES = "the backward asks it for its sizes only"
ZERO = "whatever it holds is multiplied by zero, or raised to the power zero"


def statically_dead(parts: Partitioned) -> dict[int, str]:
    """By identity, the saved values whose numbers reach no gradient, each with the reason."""
    if parts.backward is None:
        return {}
    live = {id(node) for node in nodes_in(out.value for out in parts.backward.outputs)}
    asked: set[int] = set()
    for node in reversed(parts.backward.nodes):
        for source in node.inputs():
            asked.add(id(source))
        if id(node) in live or node.origin.effect:
            live.update(id(source) for source in _sources_that_count(node))
    dead = asked - live
    return {
        id(value.node): _reason(parts, value.node)
        for value in parts.saved
        if value.size_bytes and id(value.node) in dead
    }


def _sources_that_count(node: Node) -> list[Node]:
    """The arguments whose numbers the result depends on."""
    zero = _zero_factor(node)
    if zero is not None:
        return []
    sizes = reads_only_sizes(node.op)
    given = [arg for at, arg in enumerate(node.args) if at not in sizes]
    return [*nodes_in(given), *nodes_in(node.kwargs.values())]


def _zero_factor(node: Node) -> Any:
    """What makes the result a constant, for finite numbers."""
    if packet_name(node.op) in ("aten.mul", "aten.pow") and len(node.args) == 2:
        other = node.args[1]
        if isinstance(other, (int, float)) and other == 0:
            return node
    return None


def _reason(parts: Partitioned, value: Node) -> str:
    assert parts.backward is not None  # a saved value has one
    readers = [node for node in parts.backward.nodes if any(source is value for source in node.inputs())]
    return SIZES if all(reads_only_sizes(node.op) for node in readers) else ZERO
