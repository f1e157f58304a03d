"""The cheapest set of forward values from which the backward can compute all that it needs.

A minimum cut of a network in which each forward value is an arc of its bytes; max-flow by OR-tools
(push-relabel, 64-bit capacities).  Arcs that may not be cut are infinite.  Of all minimum cuts the one
nearest to the backward is taken, since it computes the least again.
"""

from dataclasses import dataclass

import numpy as np

from aotlens.ir.program import Node
from aotlens.joint.records import Joint
from aotlens.partition.rules import (
    Keep,
    choose,
    is_checkpointed,
    is_number,
)
from aotlens.partition.sides import Sides
from aotlens.partition.storages import is_view, node_bytes, storage_root

INFINITE = 1 << 60
FREE = 1
"""A capacity of 0 would not be an arc at all."""


@dataclass(frozen=True, slots=True)
class Cut:
    saved: frozenset[int]
    """Identities of the values to save."""
    total_bytes: int


class _Network:
    """Arcs of the flow network; node v of the program is the pair 2v (computed), 2v + 1 (available)."""

    def __init__(self) -> None:
        self.tails: list[int] = []
        self.heads: list[int] = []
        self.capacities: list[int] = []

    def arc(self, tail: int, head: int, capacity: int) -> None:
        self.tails.append(tail)
        self.heads.append(head)
        self.capacities.append(capacity)


def cheapest_cut(joint: Joint, sides: Sides) -> Cut:
    """The values to save under the rules of `aotlens.partition.rules`."""
    nodes = [node for node in joint.program.nodes if id(node) not in sides.backward]
    index = {id(node): at for at, node in enumerate(nodes)}
    source, sink = 2 * len(nodes), 2 * len(nodes) + 1
    network = _Network()
    read_by_backward = _read_by_backward(joint, sides)
    results = _results(joint, read_by_backward)
    for at, node in enumerate(nodes):
        network.arc(2 * at, 2 * at + 1, results.get(id(node)) or _capacity(node, sides))
        if results.get(id(node)) == FREE or _must_save(node, sides):
            network.arc(source, 2 * at, INFINITE)
        for read in _distinct(node):
            if read in index:
                network.arc(2 * index[read] + 1, 2 * at, INFINITE)
    for read in read_by_backward:
        if read in index:
            network.arc(2 * index[read] + 1, sink, INFINITE)
    return _solve(network, nodes, source, sink)


def _capacity(node: Node, sides: Sides) -> int:
    """What saving the value costs; a view or a bundle of results is never saved itself.

    Nor is what the user checkpoints, unless it leaves its region or can only be computed now.
    """
    if is_view(node) or isinstance(node.val, (list, tuple)):
        return INFINITE
    if is_checkpointed(node) and id(node) not in sides.leaving and not _must_save(node, sides):
        return INFINITE
    return max(node_bytes(node), FREE)


def _results(joint: Joint, read_by_backward: set[int]) -> dict[int, int]:
    """What it costs to save a value that the caller receives.

    Nothing where eager's backward reads it too; elsewhere it may not be saved, since the caller may write
    to it before the backward runs, which eager allows.
    """
    nodes = {id(node): node for node in joint.program.nodes}
    read = {id(storage_root(nodes[identity])) for identity in read_by_backward if identity in nodes}
    roots = {id(storage_root(out.value)) for out in joint.handed_out if isinstance(out.value, Node)}
    return {identity: FREE if identity in read else INFINITE for identity in roots}


def _must_save(node: Node, sides: Sides) -> bool:
    """Whether the backward may not compute the value again.

    A size is kept as a number: computing it again would keep its tensor, and refuse later writes to that.
    """
    if is_number(node):
        return True
    if sides.only_now(node) or (is_checkpointed(node) and id(node) in sides.handed_on):
        return True
    if not sides.made_by_forward(node):
        return False
    rule = choose(node)
    return rule is not None and rule.keep is Keep.SAVE


def _distinct(node: Node) -> set[int]:
    return {id(source) for source in node.inputs()}


def _read_by_backward(joint: Joint, sides: Sides) -> set[int]:
    """Values that a backward node, or a gradient output, takes directly."""
    read = {id(out.value) for out in joint.gradients if isinstance(out.value, Node)}
    for node in joint.program.nodes:
        if id(node) in sides.backward:
            read |= _distinct(node)
    return read - sides.backward


def _solve(network: _Network, nodes: list[Node], source: int, sink: int) -> Cut:
    from ortools.graph.python import max_flow  # compiled, 0.1 s to import: only when something is trained

    flow = max_flow.SimpleMaxFlow()
    flow.add_arcs_with_capacity(
        np.array(network.tails, dtype=np.int32),
        np.array(network.heads, dtype=np.int32),
        np.array(network.capacities, dtype=np.int64),
    )
    if not network.tails or flow.num_nodes() <= max(source, sink):
        return Cut(frozenset(), 0)
    flow.solve(source, sink)
    sink_side = set(flow.get_sink_side_min_cut())
    saved = frozenset(
        id(node) for at, node in enumerate(nodes) if 2 * at not in sink_side and 2 * at + 1 in sink_side
    )
    return Cut(saved, int(flow.optimal_flow()))
