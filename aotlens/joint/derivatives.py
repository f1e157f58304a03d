"""Further backwards, recorded when a call first needs them: of some tangents, and of higher order.

Invariants: the backward of some tangents is what autograd runs for these outputs; if no tangent is defined,
what it runs for outputs whose tangents are all None.  It differs from the full backward with zeros for the
rest where a custom function or a hook is involved.  Each order of derivatives is what autograd runs when it
differentiates the previous order; the first is the backward itself, with a `grad_fn`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from aotlens.capture.autograd.graph_walk import nodes_in_order, requires_grad
from aotlens.ir.program import Node
from aotlens.joint.differentiation import (
    differentiate,
    recording_autograd,
    without_new_guards,
)
from aotlens.joint.records import JointProgram
from aotlens.torch_api.modes import hidden_from_user_modes

DefinedTangents = tuple[bool, ...]
"""For each tangent of the backward, whether it is defined."""


def partial_gradients(joint: JointProgram, defined: DefinedTangents) -> list[Node | None]:
    """Return the nodes of the wanted inputs' gradients; None for no gradient.

    Raises:
        UnsupportedError: an operator cannot be recorded, or a size would be specialised.
    """
    differentiated, recorder = joint.differentiated, joint.builder
    with without_new_guards(joint, "partial-backward-specialises"):
        with recorder.fake_mode:
            aliases = [recorder.new_alias(node) for node in differentiated.tangents]
        outputs, tangents = (defined_values(values, defined) for values in (differentiated.outputs, aliases))
        with recording_autograd(recorder):
            if not any(defined):
                outputs = [_UndefinedTangents.apply(*differentiated.outputs)]
                tangents = [outputs[0].detach()]
            gradients = differentiate(recorder, outputs, differentiated.leaves, tangents)
    with recorder.fake_mode, recorder.adding("joint", "a gradient, regenerated after a write"):
        return [None if tensor is None else recorder.node_of(tensor) for tensor in gradients]


class _UndefinedTangents(torch.autograd.Function):
    """Makes autograd run the backward of tensors whose tangents are None."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        ctx.count = len(tensors)
        return tensors[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None,) * ctx.count


def defined_values(values: Sequence[Any], defined: DefinedTangents | None) -> list[Any]:
    """Return the values whose tangents are defined, None for the others; all values if `defined` is None."""
    if defined is None:
        return list(values)
    return [value if is_defined else None for value, is_defined in zip(values, defined, strict=True)]


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
        earlier = [tangent for order in self._orders for tangent in order.tangents]
        sources = [*differentiated.leaves, *earlier]
        with without_new_guards(self._joint, "derivative-specialises"):
            with recorder.fake_mode:
                outputs, tangents = self._starts()
            with recording_autograd(recorder):
                gradients = differentiate(recorder, outputs, sources, tangents)
        with recorder.fake_mode, recorder.adding("joint", "a derivative, regenerated after a write"):
            values = tuple(None if tensor is None else recorder.node_of(tensor) for tensor in gradients)
        masks = _dependencies(gradients, [*sources, *tangents])
        return Order(tuple(tangents), tuple(gradients), values, masks)

    def _starts(self) -> tuple[list[Any], list[Any]]:
        """Return what the next order differentiates, and its tangents; None where there is none."""
        differentiated, recorder = self._joint.differentiated, self._joint.builder
        if not self._orders:
            aliases = [recorder.new_alias(node).requires_grad_() for node in differentiated.tangents]
            outputs = defined_values(differentiated.outputs, self._defined)
            return outputs, defined_values(aliases, self._defined)
        number = len(self._orders) + 1
        name, reason = f"tangent_of_order_{number}", f"a gradient of order {number}"
        outputs = [tensor if requires_grad(tensor) else None for tensor in self._orders[-1].gradients]
        return outputs, [
            None
            if tensor is None
            else recorder.new_tangent(tensor, name, "joint", reason)[1].requires_grad_()
            for tensor in outputs
        ]


def _dependencies(tensors: list[Any], sources: list[Any]) -> tuple[int, ...]:
    """Return for each tensor a bit mask of the sources that its autograd graph leads to."""
    own_masks: dict[Any, int] = {}
    for index, source in enumerate(sources):
        if source is not None:
            edge = source if isinstance(source, GradientEdge) else get_gradient_edge(source)
            own_masks[edge.node] = own_masks.get(edge.node, 0) | 1 << index
    starts = [get_gradient_edge(tensor).node if requires_grad(tensor) else None for tensor in tensors]
    masks: dict[Any, int] = {None: 0}
    for node in reversed(nodes_in_order(starts)):
        masks[node] = own_masks.get(node, 0)
        for following, _ in node.next_functions:
            masks[node] |= masks[following]
    return tuple(masks[start] for start in starts)
