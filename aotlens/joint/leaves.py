"""Autograd edges at which the gradients of leaves arrive.

`set_` gives a leaf a new edge; what was computed before still leads to the former one.  Invariant: the
gradient of a leaf arrives at one of its edges, and the wrapper routes it to the leaf.
"""

from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from aotlens.capture.autograd.graph_walk import autograd_nodes
from aotlens.capture.events import EventKind
from aotlens.capture.recorder import Recorder
from aotlens.unsupported import unsupported


def gradients_of(outputs: list[Any], leaves: list[Any], tangents: list[Any], recorder: Recorder) -> list[Any]:
    """Return one gradient per leaf, None for no gradient; a leaf after `set_` may have former edges.

    If a tangent requires grad, the gradients have a `grad_fn`.

    Raises:
        UnsupportedError: gradients arrive both at a leaf's edge and at a former one.
    """
    if not leaves:
        return []
    reset = [event.tensor for event in recorder.events.of(EventKind.NEW_EDGE)]
    former = _former_edges(outputs, leaves, reset) if reset else []
    sources = [*leaves, *(GradientEdge(node, 0) for _, node in former)]
    create_graph = any(tangent.requires_grad for tangent in tangents)
    results = list(
        torch.autograd.grad(
            outputs, sources, tangents, retain_graph=True, create_graph=create_graph, allow_unused=True
        )
    )
    gradients, rest = results[: len(leaves)], results[len(leaves) :]
    with_gradient = {
        id(leaf): leaf for leaf, gradient in zip(leaves, gradients, strict=True) if gradient is not None
    }
    for leaf in reset:
        if id(leaf) in with_gradient:
            recorder.note(EventKind.GRADIENT_AT_NEW_EDGE, leaf)
    beyond = _nodes_beyond_edges(leaves, gradients) if former else frozenset()
    for (index, node), gradient in zip(former, rest, strict=True):
        receives_zeros = node in beyond and node._input_metadata[0].shape != leaves[index].shape
        if id(leaves[index]) in with_gradient and (gradient is not None or receives_zeros):
            raise unsupported("set-between-uses-of-leaf", recorder.span)
        if gradient is not None:
            gradients[index] = gradient if gradients[index] is None else gradients[index] + gradient
    return gradients


def _nodes_beyond_edges(leaves: list[Any], gradients: list[Any]) -> frozenset[Any]:
    """Return the autograd nodes beyond non-leaf arguments that receive a gradient.

    A leaf that gets zeros in addition to such a gradient must have the sizes of its former edge.
    """
    pairs = zip(leaves, gradients, strict=True)
    ends = [leaf.node for leaf, gradient in pairs if isinstance(leaf, GradientEdge) and gradient is not None]
    return frozenset(autograd_nodes(ends))


def _former_edges(outputs: list[Any], leaves: list[Any], reset: list[Any]) -> list[tuple[int, Any]]:
    """Return the autograd nodes that collect the gradient of a leaf after `set_`, with the leaf's index."""
    position = {
        id(leaf): index for index, leaf in enumerate(leaves) if any(leaf is tensor for tensor in reset)
    }
    former_nodes: dict[int, list[Any]] = {}
    for node in autograd_nodes(output.grad_fn for output in outputs):
        index = position.get(id(getattr(node, "variable", None)))
        if index is not None:
            former_nodes.setdefault(index, []).append(node)
    current = {index: _current_node(leaves[index]) for index in former_nodes}
    return [
        (index, node) for index, nodes in former_nodes.items() for node in nodes if node is not current[index]
    ]


def _current_node(leaf: Any) -> Any:
    return leaf.view_as(leaf).grad_fn.next_functions[0][0]
