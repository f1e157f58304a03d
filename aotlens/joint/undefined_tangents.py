"""From which results a gradient comes: where none of these has a gradient, it is None and not zero.

Invariant: autograd's own tape of the recorded function says it, as it does in eager.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from aotlens.capture.autograd.graph_walk import nodes_in_order
from aotlens.capture.inputs.subclass_inputs import MakeNonLeafWrapper
from aotlens.capture.inputs.synthetic_bases import MakeNonLeaf

Edge = tuple[Any, int]
"""A node of the tape, and which of its inputs."""
PASSES_ON = (MakeNonLeaf, MakeNonLeafWrapper)
"""Functions of ours, which give None for None."""
USERS = ("torch._library.", "aotlens.capture.autograd.custom_functions")
"""Modules in which functions are made of the user's; all others there do as well with zeros."""


@dataclass(frozen=True, slots=True)
class UserGradSource:
    """A custom function of the user's or a hook, which may tell a gradient that is missing from zeros."""

    name: str
    """With its article: "the custom function `Clip`"."""
    tangents: frozenset[int]
    """From which a gradient that it takes comes."""


@dataclass(frozen=True, slots=True)
class TangentDependence:
    """What the tape tells beside the gradients."""

    tangents: tuple[frozenset[int], ...] = ()
    """For each gradient that autograd was asked for, the tangents that it comes from, by their order."""
    materialises_zeros: bool = False
    """Whether a custom function is on the way: it takes zeros for what is missing, and gives no None."""
    user_grad_sources: tuple[UserGradSource, ...] = ()


NO_DEPENDENCE = TangentDependence()


@dataclass(slots=True)
class BackwardEvents:
    """What a backward has met that the tape does not tell."""

    hooked: Sequence[Edge] = ()
    """Where in the tape the user's hooks are."""
    without_zeros: Sequence[Any] = ()
    """Custom functions that ask for None, and not zeros, in place of gradients that are missing."""
    none_gradients: dict[Any, frozenset[int]] = field(default_factory=dict)
    """Custom functions that gave None for inputs that require grad: which of their edges."""

    def record_gradients(self, node: Any, gradients: Any) -> None:
        """What a custom function's backward gives, one for each of its inputs."""
        results = gradients if isinstance(gradients, tuple) else (gradients,)
        wanted = [gradient for gradient, needs in zip(results, node.needs_input_grad, strict=False) if needs]
        edges = [index for index, (following, _) in enumerate(node.next_functions) if following is not None]
        pairs = zip(edges, wanted, strict=False)
        self.none_gradients.pop(node, None)
        if none := frozenset(index for index, gradient in pairs if gradient is None):
            self.none_gradients[node] = none


def tangent_dependence(
    outputs: Sequence[Any], leaves: Sequence[Any], events: BackwardEvents
) -> TangentDependence:
    """Walks the tape of the outputs; leaves are tensors or edges."""
    reached = walk = _Walk({}, {})
    reached.run(outputs)
    if events.none_gradients:
        walk = _Walk(events.none_gradients, reached.mask_by_node)
        walk.run(outputs)
    edges = (_edge(leaf) for leaf in leaves)
    masks = [
        walk.mask_by_leaf.get(id(leaf), 0) if edge is None else walk.mask_by_edge.get(edge, 0)
        for leaf, edge in zip(leaves, edges, strict=True)
    ]
    custom = walk.custom_nodes
    tellers = _user_grad_sources(walk, reached, events) if custom or events.hooked else ()
    return TangentDependence(tuple(map(_bits, masks)), bool(custom or events.hooked), tellers)


@dataclass(slots=True)
class _Walk:
    """One walk over the tape: the tangents that arrive, as bits."""

    none_gradients: dict[Any, frozenset[int]]
    """As `Met` has them."""
    tangents_at_nodes: dict[Any, int]
    """The tangents that have a node run, be it with None: what a custom function gives comes from these."""
    mask_by_edge: dict[Edge, int] = field(default_factory=dict)
    mask_by_node: dict[Any, int] = field(default_factory=dict)
    mask_by_leaf: dict[int, int] = field(default_factory=dict)
    """At leaves, by identity."""
    custom_nodes: list[Any] = field(default_factory=list)
    """The nodes of custom functions."""

    def run(self, outputs: Sequence[Any]) -> None:
        starts = [_edge(output) for output in outputs]
        for index, (output, start) in enumerate(zip(outputs, starts, strict=True)):
            if start is None:
                self.mask_by_leaf[id(output)] = self.mask_by_leaf.get(id(output), 0) | 1 << index
            else:
                self._add(start, 1 << index)
        for node in nodes_in_order(start[0] for start in starts if start is not None):
            mask, following = self.mask_by_node.get(node, 0), node.next_functions
            of_each = _foreach_masks(node, len(following), self.mask_by_edge)
            if _function_of(node) not in (None, *PASSES_ON):
                self.custom_nodes.append(node)
                mask, none = self.tangents_at_nodes.get(node, mask), self.none_gradients.get(node, ())
                of_each = [0 if index in none else mask for index in range(len(following))] if none else []
            for index, edge in enumerate(following):
                if edge[0] is not None:
                    self._add(edge, of_each[index] if index < len(of_each) else mask)
            if not following and hasattr(node, "variable"):  # a leaf has several places after `set_`
                key = id(node.variable)
                self.mask_by_leaf[key] = self.mask_by_leaf.get(key, 0) | mask

    def _add(self, edge: Edge, mask: int) -> None:
        self.mask_by_edge[edge] = self.mask_by_edge.get(edge, 0) | mask
        self.mask_by_node[edge[0]] = self.mask_by_node.get(edge[0], 0) | mask


def _bits(mask: int) -> frozenset[int]:
    return frozenset(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _user_grad_sources(walk: _Walk, reached: _Walk, events: BackwardEvents) -> tuple[UserGradSource, ...]:
    """One for each gradient that a hook takes, or a function that asks for None; one for any other function.

    That one takes zeros if any of its gradients is there, and does not run if none is.
    """
    sources: list[UserGradSource] = []
    wanting = set(events.without_zeros)
    for node in walk.custom_nodes:
        function = _function_of(node)
        if _is_user_function(function):
            edges = [edge for edge in walk.mask_by_edge if edge[0] is node] if node in wanting else []
            masks = [walk.mask_by_edge[edge] or reached.mask_by_node[node] for edge in edges]
            masks = masks or [reached.mask_by_node[node]]
            sources += [
                UserGradSource(f"the custom function `{function.__name__}`", _bits(mask)) for mask in masks
            ]
    at_hooks = (walk.mask_by_edge.get(edge, 0) or reached.mask_by_edge.get(edge, 0) for edge in events.hooked)
    return (*sources, *(UserGradSource("a hook", _bits(mask)) for mask in at_hooks if mask))


def _is_user_function(function: Any) -> bool:
    name = function.__module__
    return name.startswith(USERS) or name.partition(".")[0] not in ("torch", "aotlens")


def _foreach_masks(node: Any, count: int, at_edges: dict[Edge, int]) -> list[int]:
    """What arrives at each tensor of the lists of a `foreach` operator, which are independent."""
    if not node.name().startswith("Foreach"):
        return []
    results = len(node._input_metadata)
    return [at_edges.get((node, index % results), 0) for index in range(count - count % results)]


def _function_of(node: Any) -> Any:
    """The custom function whose backward a node is."""
    return node._forward_cls if isinstance(node, BackwardCFunction) else None  # type: ignore[attr-defined]


def _edge(tensor: Any) -> Edge | None:
    """Where gradients of a tensor arrive; None for a leaf, which the tape knows by itself."""
    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    return None if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr)
