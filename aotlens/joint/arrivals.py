"""From which results a gradient comes: where none of these has a gradient, it is None and not zero.

Invariant: autograd's own tape of the recorded function says it, as it does in eager.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from aotlens.capture.autograd_nodes import nodes_in_order
from aotlens.capture.bases import NonLeaf
from aotlens.capture.wrapper_inputs import NonLeafWrapper

Edge = tuple[Any, int]
"""A node of the tape, and which of its inputs."""
PASSES_ON = (NonLeaf, NonLeafWrapper)
"""Functions of ours, which give None for None."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What the tape tells beside the gradients."""

    of: tuple[frozenset[int], ...] = ()
    """For each gradient that autograd was asked for, the tangents that it comes from, by their order."""
    fills: bool = False
    """Whether a custom function is on the way: it takes zeros for what is missing, and gives no None."""


NOTHING_ARRIVES = Arrivals()


def arrivals(outputs: Sequence[Any], leaves: Sequence[Any]) -> Arrivals:
    """Walks the tape of the outputs once; leaves are tensors or edges."""
    starts = [_edge(output) for output in outputs]
    at_edges: dict[Edge, int] = {}
    at_nodes: dict[Any, int] = {}
    fills = False

    def arrive(edge: Edge, mask: int) -> None:
        at_edges[edge] = at_edges.get(edge, 0) | mask
        at_nodes[edge[0]] = at_nodes.get(edge[0], 0) | mask

    variables: dict[int, int] = {}
    for at, (output, start) in enumerate(zip(outputs, starts, strict=True)):
        if start is None:
            variables[id(output)] = variables.get(id(output), 0) | 1 << at
        else:
            arrive(start, 1 << at)
    for node in nodes_in_order(start[0] for start in starts if start is not None):
        fills = fills or _function_of(node) not in (None, *PASSES_ON)
        mask, following = at_nodes[node], node.next_functions
        of_each = _of_each(node, len(following), at_edges)
        for at, edge in enumerate(following):
            if edge[0] is not None:
                arrive(edge, of_each[at] if at < len(of_each) else mask)
        if not following and hasattr(node, "variable"):  # a leaf has several places after `set_`
            variables[id(node.variable)] = variables.get(id(node.variable), 0) | mask
    edges = (_edge(leaf) for leaf in leaves)
    masks = [
        variables.get(id(leaf), 0) if edge is None else at_edges.get(edge, 0)
        for leaf, edge in zip(leaves, edges, strict=True)
    ]
    tangents = range(len(starts))
    return Arrivals(tuple(frozenset(at for at in tangents if mask >> at & 1) for mask in masks), fills)


def _of_each(node: Any, count: int, at_edges: dict[Edge, int]) -> list[int]:
    """What arrives at each tensor of the lists of a `foreach` operator, which are independent."""
    if not node.name().startswith("Foreach"):
        return []
    results = len(node._input_metadata)
    return [at_edges.get((node, at % results), 0) for at in range(count - count % results)]


def _function_of(node: Any) -> Any:
    """The custom function whose backward a node is."""
    return node._forward_cls if isinstance(node, BackwardCFunction) else None  # type: ignore[attr-defined]


def _edge(tensor: Any) -> Edge | None:
    """Where gradients of a tensor arrive; None for a leaf, which the tape knows by itself."""
    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    return None if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr)
