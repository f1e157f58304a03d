"""Which tangents a gradient depends on: if all of them are undefined, the gradient is None and not zero.

Invariant: autograd's own graph of the recorded function decides it, as in eager.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from aotlens.capture.autograd.graph_walk import nodes_in_order
from aotlens.capture.inputs.tensor_inputs import MakeNonLeaf

Edge = tuple[Any, int]
"""An autograd node and the index of one of its inputs."""
USERS = ("torch._library.", "aotlens.capture.autograd.custom_functions")
"""Modules with functions that call the user's code; all other functions there treat zeros like None."""


GradientKey = tuple[type, int]
"""The class of a gradient's slot, and its index."""


@dataclass(frozen=True, slots=True)
class UserGradSource:
    """A custom function or a hook of the user's, for which an undefined tangent may differ from zeros."""

    name: str
    """With its article: "the custom function `Clip`"."""
    tangents: frozenset[int]
    """The tangents that its gradient depends on."""


@dataclass(frozen=True, slots=True)
class TangentDependence:
    """Facts of the autograd graph about undefined tangents."""

    tangents: dict[GradientKey, frozenset[int]] = field(default_factory=dict)
    """For each gradient that autograd was asked for, the indices of the tangents that it depends on."""
    materialises_zeros: bool = False
    """Whether eager materialises zeros if no tangent is defined at all: a custom function or a hook does."""
    user_grad_sources: tuple[UserGradSource, ...] = ()
    """Custom functions and hooks for which an undefined tangent may differ from zeros."""


NO_DEPENDENCE = TangentDependence()


@dataclass(slots=True)
class BackwardEvents:
    """Events of a backward that the autograd graph does not contain."""

    hooked: Sequence[Edge] = ()
    """The edges with user hooks."""
    without_zeros: Sequence[Any] = ()
    """Custom functions that ask for None instead of zeros (`set_materialize_grads(False)`)."""
    none_gradients: dict[Any, frozenset[int]] = field(default_factory=dict)
    """Custom functions that returned None for inputs that require grad: the indices of their edges."""

    def record_gradients(self, node: Any, gradients: Any) -> None:
        """Record the gradients that a custom function's backward returns, one for each of its inputs."""
        results = gradients if isinstance(gradients, tuple) else (gradients,)
        needed = [gradient for gradient, needs in zip(results, node.needs_input_grad, strict=False) if needs]
        edges = [index for index, (following, _) in enumerate(node.next_functions) if following is not None]
        pairs = zip(edges, needed, strict=False)
        self.none_gradients.pop(node, None)
        if none := frozenset(index for index, gradient in pairs if gradient is None):
            self.none_gradients[node] = none


def tangent_dependence(
    outputs: Sequence[Any], leaves: dict[GradientKey, Any], events: BackwardEvents
) -> TangentDependence:
    """Find the tangents that each leaf's gradient depends on; leaves are tensors or edges."""
    plain_walk = walk = _Walk({}, {})
    plain_walk.run(outputs)
    if events.none_gradients:
        walk = _Walk(events.none_gradients, plain_walk.mask_by_node)
        walk.run(outputs)
    tangents = {key: _bits(walk.mask_of(leaf)) for key, leaf in leaves.items()}
    if not walk.custom_nodes and not events.hooked:
        return TangentDependence(tangents)
    return TangentDependence(tangents, True, _user_grad_sources(walk, plain_walk, events))


@dataclass(slots=True)
class _Walk:
    """One walk over the autograd graph, with the tangents that reach each node as bit masks."""

    none_gradients: dict[Any, frozenset[int]]
    """As in `BackwardEvents`."""
    tangents_at_nodes: dict[Any, int]
    """The tangents for which a node runs, even with None: what a custom function returns depends on these."""
    mask_by_edge: dict[Edge, int] = field(default_factory=dict)
    mask_by_node: dict[Any, int] = field(default_factory=dict)
    mask_by_leaf: dict[int, int] = field(default_factory=dict)
    """By the identity of a leaf."""
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
            if _function_of(node) not in (None, MakeNonLeaf):
                self.custom_nodes.append(node)
                masks = self._masks_of_custom_node(node, mask)
            else:
                masks = _foreach_masks(node, len(following), self.mask_by_edge)
            for index, edge in enumerate(following):
                if edge[0] is not None:
                    self._add(edge, masks[index] if index < len(masks) else mask)
            if not following and hasattr(node, "variable"):  # a leaf has several edges after `set_`
                key = id(node.variable)
                self.mask_by_leaf[key] = self.mask_by_leaf.get(key, 0) | mask

    def mask_of(self, leaf: Any) -> int:
        """Return the mask of a leaf's gradient."""
        edge = _edge(leaf)
        return self.mask_by_leaf.get(id(leaf), 0) if edge is None else self.mask_by_edge.get(edge, 0)

    def _masks_of_custom_node(self, node: Any, mask: int) -> list[int]:
        """Return the mask of each gradient that a custom function returns; 0 where it returned None.

        The function runs even if what arrives is None, and may return a gradient then.
        """
        mask, none = self.tangents_at_nodes.get(node, mask), self.none_gradients.get(node, ())
        return [0 if index in none else mask for index in range(len(node.next_functions))]

    def _add(self, edge: Edge, mask: int) -> None:
        self.mask_by_edge[edge] = self.mask_by_edge.get(edge, 0) | mask
        self.mask_by_node[edge[0]] = self.mask_by_node.get(edge[0], 0) | mask


def _bits(mask: int) -> frozenset[int]:
    return frozenset(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _user_grad_sources(walk: _Walk, plain_walk: _Walk, events: BackwardEvents) -> tuple[UserGradSource, ...]:
    """Return one for each gradient of a hook or of a function that asks for None; one for any other function.

    Such another function materialises zeros if any of its gradients is defined, and does not run if none is.
    """
    sources: list[UserGradSource] = []
    without_zeros = set(events.without_zeros)
    for node in walk.custom_nodes:
        function = _function_of(node)
        if _is_user_function(function):
            edges = [edge for edge in walk.mask_by_edge if edge[0] is node] if node in without_zeros else []
            masks = [walk.mask_by_edge[edge] or plain_walk.mask_by_node[node] for edge in edges]
            masks = masks or [plain_walk.mask_by_node[node]]
            sources += [
                UserGradSource(f"the custom function `{function.__name__}`", _bits(mask)) for mask in masks
            ]
    hook_masks = (
        walk.mask_by_edge.get(edge, 0) or plain_walk.mask_by_edge.get(edge, 0) for edge in events.hooked
    )
    return (*sources, *(UserGradSource("a hook", _bits(mask)) for mask in hook_masks if mask))


def _is_user_function(function: Any) -> bool:
    name = function.__module__
    return name.startswith(USERS) or name.partition(".")[0] not in ("torch", "aotlens")


def _foreach_masks(node: Any, count: int, mask_by_edge: dict[Edge, int]) -> list[int]:
    """Return the mask of each tensor in the lists of a `foreach` operator, which are independent."""
    if not node.name().startswith("Foreach"):
        return []
    results = len(node._input_metadata)
    return [mask_by_edge.get((node, index % results), 0) for index in range(count - count % results)]


def _function_of(node: Any) -> Any:
    """Return the custom function whose backward a node is."""
    return node._forward_cls if isinstance(node, BackwardCFunction) else None  # type: ignore[attr-defined]


def _edge(tensor: Any) -> Edge | None:
    """Return the edge at which gradients of a tensor arrive; None for a leaf."""
    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    return None if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr)
