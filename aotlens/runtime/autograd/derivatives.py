"""The function bound to `differentiable_backward` in a loaded module: gradients with a `grad_fn`.

Invariant: the gradients are those of the compiled backward; their derivatives of any order are programs from
the one recording, built on first use.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotlens.errors import AotlensError
from aotlens.ir.program import Node
from aotlens.ir.slots import SavedInput
from aotlens.joint.derivatives import DefinedTangents, Derivatives
from aotlens.partition.derivatives import available_nodes, derivative_program, positions_read, recorded_inputs
from aotlens.partition.records import Partitioned
from aotlens.runtime.autograd.double_backward import (
    mutated_inputs,
    no_double_backward_error,
    unsaved_inputs,
    wanted_slots,
)
from aotlens.runtime.autograd.undefined_tangents import PartialBackwardGraph
from aotlens.runtime.graph_text import load_program
from aotlens.torch_api.dynamo.state import hide_from_dynamo
from aotlens.torch_api.modes import below_views, hidden_from_user_modes, without_autocast
from aotlens.torch_api.transforms import is_batched, map_over_batch

Run = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Request:
    """One order of derivatives of one call."""

    number: int
    values: tuple[Any, ...]
    """Values of `available_nodes`; None for an input that is gone or has changed."""
    source_count: int
    """How many of the tensors that follow are wanted inputs; the rest are tangents."""
    run: Run
    """Takes the tangents and returns the gradients."""
    depends_on: tuple[int, ...]
    """As in `aotlens.joint.derivatives.Order`."""


class DifferentiableBackward:
    """The gradients of one compiled function, as part of the autograd graph."""

    def __init__(
        self, parts: Partitioned, donated: tuple[int, ...], defined: DefinedTangents | None = None
    ) -> None:
        self._parts = parts
        self._partial: dict[DefinedTangents, DifferentiableBackward] = {}
        """By the set of defined tangents, if some are undefined."""
        self._name = parts.joint.captured.subject.name
        self._donated = donated
        self._derivatives = Derivatives(parts.joint, defined)
        self._programs: dict[tuple[int, tuple[bool, ...]], tuple[Any, list[int]]] = {}
        self._available = available_nodes(parts)
        self._saved = [
            item.node if isinstance(item.slot, SavedInput) else None for item in recorded_inputs(parts)
        ]
        """For each backward input that was saved, its node in the recording; else None."""

    def __call__(self, graph: Run, inputs: list[Any], unsaved: Any, versions: Any, former: Any) -> Any:
        """Return the gradients, in the backward's order."""
        if isinstance(graph, PartialBackwardGraph):
            defined, run_partial = graph.defined, graph.run
            if defined not in self._partial:
                self._partial[defined] = DifferentiableBackward(self._parts, (), defined)
            return self._partial[defined](run_partial, inputs, unsaved, versions, former)
        pairs = list(zip(self._saved, inputs, strict=True))
        available = {id(node): value for node, value in pairs if node is not None}
        saved, sources = list(available.values()), dict(available)
        tangents = [value for node, value in pairs if node is None]
        self._add_unsaved(available, sources, unsaved, versions)
        sources |= {
            id(changed.node): value
            for changed, value in zip(mutated_inputs(self._parts), former, strict=True)
        }

        def run(gradients: list[Any]) -> Sequence[Any]:
            listed = [*saved, *gradients]
            for index in self._donated:
                listed[index] = listed[index].clone()
            return graph(listed)

        values = tuple(available.get(id(node)) for node in self._available)
        return self._apply(1, values, self._wanted(sources), tangents, run)

    def next_order(self, request: Request, tensors: list[Any], needed: tuple[bool, ...]) -> Any:
        """Return the derivatives of an order's gradients: by the wanted inputs, then by the tangents."""
        number = request.number + 1
        sources, tangents = tensors[: request.source_count], tensors[request.source_count :]
        if torch.is_grad_enabled():
            needed = tuple(True for _ in needed)
        program, reads = self._with_double_backward_error(lambda: self._program(number, needed))
        lost = [
            self._available[index]
            for index in reads
            if index < len(self._available) and request.values[index] is None
        ]
        if lost:
            raise RuntimeError(no_double_backward_error(self._name, self._missing_input_error(lost[0])))
        like = [
            tensor for order in range(1, number + 1) for tensor in self._derivatives.order(order).tangents
        ]

        def run(incoming: list[Any]) -> Sequence[Any]:
            incoming = [
                _with_strides(value, expected) for value, expected in zip(incoming, like, strict=True)
            ]
            arguments = [*request.values, *incoming]
            results: Sequence[Any] = program(*[arguments[index] for index in reads])
            return results

        if torch.is_grad_enabled():
            return self._apply(number, request.values, sources, tangents, run)
        with torch.no_grad(), below_views(), without_autocast():
            return run(tangents)

    def _apply(
        self, number: int, values: tuple[Any, ...], sources: list[Any], tangents: list[Any], run: Run
    ) -> Any:
        if any(map(is_batched, tangents)):
            return map_over_batch(lambda each: self._apply(number, values, sources, each, run), tangents)
        order = self._with_double_backward_error(lambda: self._derivatives.order(number))
        request = Request(number, values, len(sources), run, order.depends_on)
        return _Derivative.apply(self, request, *sources, *tangents)

    def _program(self, number: int, needed: tuple[bool, ...]) -> tuple[Any, list[int]]:
        """Return one order's function, and its arguments' indices among available values and tangents."""
        cached = self._programs.get((number, needed))
        if cached is None:
            order = self._derivatives.order(number)
            wanted = [
                node if is_needed else None for node, is_needed in zip(order.values, needed, strict=True)
            ]
            tangents = self._derivatives.tangent_nodes(number)
            with hidden_from_user_modes("derivative"):
                program = derivative_program(self._parts, f"derivative_{number}", tangents, wanted)
            reads = positions_read(program, [*self._available, *tangents])
            cached = self._programs[number, needed] = (load_program(program), reads)
        return cached

    def _with_double_backward_error(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except AotlensError as error:
            raise RuntimeError(no_double_backward_error(self._name, str(error))) from error

    def _add_unsaved(
        self, available: dict[int, Any], sources: dict[int, Any], unsaved: Any, versions: Any
    ) -> None:
        """Add, by node, the inputs that the forward did not save for the backward."""
        for captured_input, reference, version in zip(
            unsaved_inputs(self._parts), unsaved, versions, strict=True
        ):
            value = reference() if isinstance(reference, weakref.ref) else reference
            if value is None:
                continue
            unchanged = version is None or value._version == version
            if unchanged or value.is_leaf:  # a leaf keeps its edge
                sources[id(captured_input.node)] = value
            if unchanged:
                available[id(captured_input.node)] = value

    def _wanted(self, sources: dict[int, Any]) -> list[Any]:
        """Return for each wanted input a tensor with its `grad_fn`."""
        order = self._with_double_backward_error(lambda: self._derivatives.order(1))
        inputs = self._parts.joint.captured.inputs
        nodes: list[Any] = [inputs[slot.index].node for slot in wanted_slots(self._parts)]
        for node, gradient in zip(nodes, order.values, strict=True):
            if gradient is not None and id(node) not in sources:
                raise RuntimeError(no_double_backward_error(self._name, self._missing_input_error(node)))
        return [sources.get(id(node)) for node in nodes]

    def _missing_input_error(self, node: Node) -> str:
        inputs = self._parts.joint.captured.inputs
        name = next(
            (captured_input.slot.name for captured_input in inputs if captured_input.node is node), node.name
        )
        return (
            f"the input `{name}` was freed or written to since the call; keep it unchanged until the backward"
        )


def _with_strides(value: Any, like: Any) -> Any:
    """Return a gradient with the strides that the recording assumes."""
    if not isinstance(value, torch.Tensor) or like is None:
        return value
    if any(isinstance(size, torch.SymInt) for size in (*like.shape, *like.stride())):
        return value.contiguous()
    if value.stride() == like.stride() or value.numel() < 2:
        return value
    strided = torch.empty_strided(like.shape, like.stride(), dtype=value.dtype, device=value.device)
    return strided.copy_(value)


class _Derivative(torch.autograd.Function):
    """The gradients of one order; their own derivatives are the next order."""

    @staticmethod
    def forward(ctx: Any, owner: DifferentiableBackward, request: Request, *tensors: Any) -> Any:
        saved = [value for value in request.values if isinstance(value, torch.Tensor)]
        marked = tuple(torch.Tensor if isinstance(v, torch.Tensor) else v for v in request.values)
        ctx.save_for_backward(*saved, *tensors)
        ctx.owner, ctx.request = owner, replace(request, values=marked, run=_used_request)
        with below_views(), without_autocast():
            results = list(request.run(list(tensors[request.source_count :])))
        for index, result in enumerate(results):
            if result is not None and any(result is other for other in (*results[:index], *tensors)):
                results[index] = result.detach()
        graded = [
            index for index, tensor in enumerate(tensors) if tensor is not None and tensor.requires_grad
        ]
        fixed = [
            result
            for result, bits in zip(results, request.depends_on, strict=True)
            if result is not None and not any(bits >> index & 1 for index in graded)
        ]
        ctx.mark_non_differentiable(*fixed)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        request, saved = ctx.request, iter(ctx.saved_tensors)
        values = tuple(next(saved) if value is torch.Tensor else value for value in request.values)
        tensors = [*saved, *gradients]
        derivatives = ctx.owner.next_order(replace(request, values=values), tensors, ctx.needs_input_grad[2:])
        return None, None, *derivatives


def hide_derivatives_from_dynamo() -> None:
    """Hide our bookkeeping from Dynamo, which traces what autograd calls while one of its frames runs."""
    if not hasattr(_Derivative.backward, "_torchdynamo_orig_callable"):
        setattr(_Derivative, "backward", staticmethod(hide_from_dynamo(_Derivative.backward)))  # noqa: B010


def _used_request(_: list[Any]) -> Sequence[Any]:
    """Replaces the function of a used request, which would hold tensors that autograd already holds."""
    raise AssertionError("an order of derivatives runs once")
