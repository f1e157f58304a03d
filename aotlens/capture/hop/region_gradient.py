"""Gradients of marked regions (`invoke_subgraph`), in place of torch's own rule.

Invariant: a region is recorded once per kind of operands, forward and backward together, and split once.  A
region that writes to an operand is not a function of its operands: it is inlined at each call.
"""

from typing import Any

import torch

from aotlens.capture.autograd.graph_walk import requires_grad
from aotlens.capture.hop.bodies import Body, runner_of
from aotlens.capture.hop.nested_regions import RegionPart, empty_with_strides_of
from aotlens.capture.hop.subgraphs import region_kind, region_program
from aotlens.capture.provenance.frames import call_boundary
from aotlens.capture.provenance.origins import Origins
from aotlens.capture.recorder import Recorder
from aotlens.capture.storage import find_tracked
from aotlens.errors import UnsupportedError
from aotlens.ir.program import Program, ProgramInput
from aotlens.ir.regions import Region, RegionOperand, RegionOutput, RegionSize, SavedValue
from aotlens.ir.slots import Gradient, Tangent
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.hop import invoke_subgraph
from aotlens.torch_api.modes import below_autograd, current_mode, without_autocast, without_modes
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported

LEAF_WRITE_ERROR = "a leaf Variable that requires grad is being used in an in-place operation"
"""Autograd's error for the fake leaf of an operand; the operand itself need not be a leaf."""


def record_region_call(subgraph: Any, identifier: Any, *operands: Any) -> Any:
    """Record one call of a marked region; return NotImplemented to use torch's own rule.

    Without a recording the region runs directly: torch's rule could not run its backward.
    """
    recording = current_mode()
    if recording is None and torch.is_grad_enabled():
        return tuple(subgraph(*operands))
    if (
        not isinstance(recording, Recorder)
        or recording.split_region is None
        or isinstance(subgraph, RegionPart)
    ):
        return NotImplemented
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    if not all(type(tensor) is FakeTensor and find_tracked(tensor) is not None for tensor in tensors):
        return NotImplemented
    in_place = ("run in place", id(subgraph))
    try:
        if in_place in recording.regions:
            return tuple(runner_of(recording, subgraph)(*operands))
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
            with without_modes(), recording.fake_mode:
                region_program(recording, subgraph, identifier, *operands)
            return NotImplemented
        region = _split_region(recording, subgraph, identifier, operands)
    except UnsupportedError:  # not a program of its own, as if it writes to an operand
        recording.regions[in_place] = (None, subgraph)
        return tuple(runner_of(recording, subgraph)(*operands))
    if region is None:  # no output requires grad
        return NotImplemented
    return _Call.apply(region, subgraph, *operands)


def _split_region(
    recording: Recorder, subgraph: Any, identifier: Any, operands: tuple[Any, ...]
) -> Region | None:
    """Return the split region; None if no gradient flows through it.

    Raises:
        UnsupportedError: the region is no program of its own: it writes to an operand, or needs RNG state.
    """
    needs_grad = (operand.requires_grad for operand in operands if isinstance(operand, torch.Tensor))
    key = (identifier, id(subgraph), region_kind(operands), *needs_grad)
    if key not in recording.regions:
        assert recording.split_region is not None  # without it, record_region_call uses torch's rule
        program = _record(recording, subgraph, identifier, operands)
        recording.regions[key] = (program and recording.split_region(program), subgraph)
    region: Region | None = recording.regions[key][0]
    return region


class _Call(torch.autograd.Function):
    """One recorded call of a region."""

    @staticmethod
    def forward(ctx: Any, region: Region, subgraph: Any, *operands: Any) -> Any:
        ctx.set_materialize_grads(False)
        with below_autograd():
            values = invoke_subgraph(RegionPart(region, region.forward), region.forward.name, *operands)
        results = values[: region.result_count]
        ctx.region, ctx.subgraph, ctx.operands = region, subgraph, operands
        ctx.versions = [operand._version if isinstance(operand, torch.Tensor) else 0 for operand in operands]
        ctx.saved_values = [_value(saved_value, operands, values) for saved_value in region.saved]
        ctx.save_for_backward(
            *(value for value in ctx.saved_values if any(value is known for known in (*operands, *results)))
        )
        differentiable = {index for index, _ in region.tangents}
        ctx.mark_non_differentiable(
            *(
                result
                for index, result in enumerate(results)
                if index not in differentiable and isinstance(result, torch.Tensor)
            )
        )
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            return (None, None, *_differentiable_gradients(ctx, gradients))
        ctx.saved_tensors  # noqa: B018  # raises where what it keeps was written to
        region = ctx.region
        tangents = [_tangent(gradients[index], like.val) for index, like in region.tangents]
        with below_autograd():
            values = invoke_subgraph(
                RegionPart(region, region.backward), region.backward.name, *ctx.saved_values, *tangents
            )
        by_operand = dict(zip(region.gradients, values, strict=True))
        return (None, None, *(by_operand.get(index) for index in range(len(ctx.operands))))


def _value(saved_value: SavedValue, operands: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
    match saved_value.source:
        case RegionOperand(index):
            return operands[index]
        case RegionOutput(index):
            return values[index]
        case RegionSize(value):
            return value


def _tangent(gradient: Any, like: Any) -> Any:
    """Return a tangent in the layout that the backward was recorded with; zeros if it is undefined."""
    if gradient is None:
        return empty_with_strides_of(like).zero_()
    return gradient if gradient.stride() == like.stride() else empty_with_strides_of(like).copy_(gradient)


def _differentiable_gradients(ctx: Any, tangents: tuple[Any, ...]) -> list[Any]:
    """Return gradients that can be differentiated again, by running the region once more."""
    operands = ctx.operands
    for operand, version in zip(operands, ctx.versions, strict=True):
        if isinstance(operand, torch.Tensor) and operand._version != version:
            raise unsupported("region-operand-written", ctx.region.forward.nodes[0].origin.location.innermost)
    # Aliases: the gradient is with respect to this call's operands only, not through other operands.
    operands = tuple(
        operand.view_as(operand) if isinstance(operand, torch.Tensor) else operand for operand in operands
    )
    results = pytree.tree_leaves(runner_of(current_mode(), ctx.subgraph)(*operands))
    pairs = [
        (result, gradient)
        for result, gradient in zip(results, tangents, strict=True)
        if gradient is not None and result.requires_grad
    ]
    wanted = [operand for operand in operands if requires_grad(operand)]
    gradients = torch.autograd.grad(
        [result for result, _ in pairs],
        wanted,
        [gradient for _, gradient in pairs],
        create_graph=True,
        allow_unused=True,
    )
    by_operand = {id(operand): gradient for operand, gradient in zip(wanted, gradients, strict=True)}
    return [by_operand.get(id(operand)) for operand in operands]


def _record(recording: Recorder, subgraph: Any, identifier: Any, operands: tuple[Any, ...]) -> Program | None:
    """Return the region's forward and backward in one program; None if no gradient flows through it."""
    inner: Recorder = recording.subgraph_recorder()
    inner.origins = Origins()
    inner.origins.known_frames = recording.origins.known_frames
    with without_modes(), recording.fake_mode:
        body = Body(inner, "invoke_subgraph", recording.name(str(identifier)), operands)
        for argument, operand in zip(body.arguments, operands, strict=True):
            if requires_grad(operand):
                argument.requires_grad_()
        try:
            with inner:
                result = body.run(subgraph)
        except RuntimeError as error:
            if LEAF_WRITE_ERROR not in str(error):
                raise
            raise unsupported("operand-written") from error
        body.check_no_writes()
        results = body.add_results(tuple(result))
        return body.program() if _add_gradients(inner, body, results) else None


def _add_gradients(inner: Recorder, body: Body, results: list[Any]) -> bool:
    """Add the tangents and the gradients to a region; return False if no gradient flows through it."""
    differentiable = {index: leaf for index, leaf in enumerate(results) if requires_grad(leaf)}
    wanted = {index: leaf for index, leaf in enumerate(body.arguments) if requires_grad(leaf)}
    tangents = []
    for index, leaf in differentiable.items():
        reason = "the gradient of a region's result"
        node, tangent = inner.new_tangent(leaf, f"tangent_{index}", "capture", reason)
        body.add_input(ProgramInput(node, Tangent(str(index))), tangent)
        tangents.append(tangent)
    if not tangents:
        return False
    inner.in_backward, inner.origins.known_frames = True, None
    outputs, operands = list(differentiable.values()), list(wanted.values())
    with inner, without_autocast():
        gradients = call_boundary(lambda: torch.autograd.grad(outputs, operands, tangents, allow_unused=True))
    for index, gradient in zip(wanted, gradients, strict=True):
        if gradient is not None:
            body.add_output(gradient, Gradient(f"{body.label}_{index}", index))
    return True
