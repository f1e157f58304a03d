"""Higher-order derivatives, recorded when a caller first asks for them.

Invariant: each order is what autograd runs when it differentiates the previous order, on the tensors of the
one recorded run of the user's function; the first order is the backward itself, with a `grad_fn`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from aotlens.capture.error_translation import translated_errors
from aotlens.capture.run import call_boundary, recording
from aotlens.ir.names import node_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.joint.leaves import gradients_of
from aotlens.joint.partial_backward import DefinedTangents, alias_of, defined_values, guard_count
from aotlens.joint.records import JointProgram
from aotlens.torch_api.modes import hidden_from_user_modes, without_autocast
from aotlens.unsupported import unsupported


@dataclass(frozen=True, slots=True)
class Order:
    """One order of derivatives: by the wanted inputs, then by the tangents of all previous orders."""

    tangents: tuple[Any, ...]
    """The tangents of the previous order's gradients (in the first order, of the forward's outputs), as fake
    tensors; None for what has no `grad_fn`."""
    gradients: tuple[Any, ...]
    """Fake tensors; None for no gradient."""
    values: tuple[Node | None, ...]
    """The nodes of the gradients."""
    depends_on: tuple[int, ...]
    """For each gradient a bit mask of the wanted inputs, then the tangents so far, that it depends on."""


class Derivatives:
    """The derivatives recorded so far."""

    def __init__(self, joint: JointProgram, defined: DefinedTangents | None = None) -> None:
        self._joint = joint
        self._defined = defined
        """Which tangents are defined; None if all are."""
        self._orders: list[Order] = []

    def order(self, number: int) -> Order:
        """Return the derivative of this order, counted from 1.

        Raises:
            UnsupportedError: an operator cannot be recorded, or a size would be specialised.
        """
        while len(self._orders) < number:
            with hidden_from_user_modes("derivative"):
                self._orders.append(self._next_order())
        return self._orders[number - 1]

    def tangent_nodes(self, number: int) -> list[Node | None]:
        """Return the nodes of all tangents up to this order; None for what has no tangent."""
        recorder = self._joint.builder
        return [
            None if tangent is None else recorder.node_of(tangent)
            for order in self._orders[:number]
            for tangent in order.tangents
        ]

    def _next_order(self) -> Order:
        differentiated, recorder = self._joint.differentiated, self._joint.builder
        guards = guard_count(recorder)
        with recorder.fake_mode:
            if not self._orders:
                outputs: list[Any] = defined_values(differentiated.outputs, self._defined)
                tangents = defined_values(
                    [alias_of(recorder, node).requires_grad_() for node in differentiated.tangents],
                    self._defined,
                )
            else:
                outputs = [
                    tensor if _requires_grad(tensor) else None for tensor in self._orders[-1].gradients
                ]
                tangents = [None if tensor is None else self._tangent(tensor) for tensor in outputs]
        earlier = [tangent for order in self._orders for tangent in order.tangents]
        sources = [*differentiated.leaves, *earlier]
        gradients = _differentiate(self._joint, outputs, sources, tangents)
        if guard_count(recorder) != guards:
            raise unsupported("derivative-specialises", self._joint.captured.subject.span)
        with recorder.fake_mode, recorder.adding("joint", "a derivative, regenerated after a write"):
            values = tuple(None if tensor is None else recorder.node_of(tensor) for tensor in gradients)
        masks = _dependencies(gradients, [*sources, *tangents])
        return Order(tuple(tangents), tuple(gradients), values, masks)

    def _tangent(self, like: Any) -> Any:
        """Return a fake tangent of a gradient, contiguous if the gradient has gaps."""
        recorder, number = self._joint.builder, len(self._orders) + 1
        dense = torch.ops.aten.is_non_overlapping_and_dense.default(like)
        kind = {"dtype": like.dtype, "device": like.device}
        tensor = (
            torch.empty_strided(like.shape, like.stride(), **kind)
            if dense
            else torch.empty(like.shape, **kind)
        )
        origin = Origin(NO_ORIGIN, "", backward=True, stage="joint", reason=f"a gradient of order {number}")
        name = recorder.name(node_name(f"tangent_of_order_{number}"))
        return alias_of(recorder, Node(name, None, (), {}, tensor, origin)).requires_grad_()


def _differentiate(
    joint: JointProgram, outputs: list[Any], sources: list[Any], tangents: list[Any]
) -> list[Any]:
    """Return one gradient per source, each with a `grad_fn`."""
    recorder = joint.builder
    defined_sources = [source for source in sources if source is not None]
    dynamic = recorder.fake_mode.shape_env is not None
    with recording(recorder, dynamic), translated_errors(recorder), torch.enable_grad(), without_autocast():
        gradients = call_boundary(
            lambda: gradients_of(
                [output for output in outputs if output is not None],
                defined_sources,
                [tangent for tangent in tangents if tangent is not None],
                recorder,
            )
        )
    remaining = iter(gradients)
    return [None if source is None else next(remaining) for source in sources]


def _requires_grad(tensor: Any) -> bool:
    return tensor is not None and tensor.requires_grad


def _dependencies(tensors: list[Any], sources: list[Any]) -> tuple[int, ...]:
    """Return for each tensor a bit mask of the sources that its autograd graph leads to."""
    mask_by_node: dict[Any, int] = {}
    for index, source in enumerate(sources):
        if source is not None:
            edge = source if isinstance(source, GradientEdge) else get_gradient_edge(source)
            mask_by_node[edge.node] = mask_by_node.get(edge.node, 0) | 1 << index
    own_masks = dict(mask_by_node)
    done: set[Any] = set()
    for tensor in tensors:
        if _requires_grad(tensor):
            _propagate(get_gradient_edge(tensor).node, mask_by_node, own_masks, done)
    return tuple(
        mask_by_node[get_gradient_edge(tensor).node] if _requires_grad(tensor) else 0 for tensor in tensors
    )


def _propagate(start: Any, mask_by_node: dict[Any, int], own_masks: dict[Any, int], done: set[Any]) -> None:
    """Compute the mask of every autograd node that `start` leads to."""
    stack = [start]
    while stack:
        node = stack[-1]
        following = [after for after, _ in node.next_functions if after is not None]
        waiting = [after for after in following if after not in done] if node not in done else []
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if node in done:
            continue
        done.add(node)
        mask_by_node[node] = own_masks.get(node, 0)
        for after in following:
            mask_by_node[node] |= mask_by_node[after]
