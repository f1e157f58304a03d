"""What an exported graph cannot express, refused by the name of the argument and its line.

Invariant: each message holds the words that programs written for `functorch.compile` look for.
"""

from typing import Any

import torch

from aotlens.analysis.records import InputAliasInfo, OutputType
from aotlens.capture.records import CapturedInput
from aotlens.errors import RejectedRuntimeError
from aotlens.ir.slots import FreeTensor
from aotlens.joint.records import JointProgram
from aotlens.model.report import Span
from aotlens.torch_api.rng import functionalizes_rng

FRESH = frozenset({OutputType.NON_ALIAS, OutputType.UNSAFE_VIEW_ALIAS})


def reject_settings() -> None:
    """Refuse what the user switched on that an exported graph cannot hold."""
    if functionalizes_rng():
        raise RejectedRuntimeError(
            "Functionalized RNG is not currently supported in the aot_export workflow",
            None,
            "set `functionalize_rng_ops` to False",
        )


def reject_inexpressible(joint: JointProgram, trace_joint: bool) -> None:
    """Refuse mutations that need a wrapper around the graph."""
    for gradient in joint.captured.structure.gradients:
        name = joint.captured.inputs[gradient.index].slot.name
        case = f"aot_export of a function that leaves or takes away a gradient in `{name}.grad`"
        raise RejectedRuntimeError(case, joint.captured.subject.span, "return the gradient")
    for captured_input, info in zip(joint.captured.inputs, joint.meta.inputs, strict=True):
        span = _span(joint, info)
        name = f"`{captured_input.slot.name}`"
        if isinstance(captured_input.slot, FreeTensor):
            own = joint.captured.reachable.name_of(captured_input.free_tensor)
            case = f"aot_export of a function that reads `{own}`, which requires grad, past its arguments"
            raise RejectedRuntimeError(case, joint.captured.subject.span, "pass it, or make it a parameter")
        if captured_input.wrapped is not None:
            kind = captured_input.wrapped.meta.name
            case = f"aot_export is not currently supported with traceable tensor subclass: {name}, a `{kind}`"
            raise RejectedRuntimeError(case, joint.captured.subject.span, "pass the tensors inside it")
        if captured_input.duplicate_of is not None:
            _reject_duplicate(joint, captured_input)
        elif info.mutates_metadata:
            case = f"Found an input that received a metadata mutation: {name}"
            raise RejectedRuntimeError(case, span, "export a function that works on a view of it")
        elif (
            captured_input.base is not None and joint.captured.inputs[captured_input.base].storage is not None
        ):
            others = ", ".join(
                f"`{joint.captured.inputs[index].slot.name}`" for index in captured_input.shares_storage_with
            )
            case = f"Encountered aliased inputs that are mutated in the graph: {name} and {others}"
            raise RejectedRuntimeError(case, _span_of_base(joint, captured_input), "pass clones of them")
        elif trace_joint and info.mutates_data and (captured_input.requires_grad or info.seen_by_autograd):
            case = f"Found a graph input that requires gradients, and received a mutation: {name}"
            raise RejectedRuntimeError(case, span, "write to a clone of it")


def _reject_duplicate(joint: JointProgram, captured_input: CapturedInput) -> None:
    assert captured_input.duplicate_of is not None  # asked only for these
    info = joint.meta.inputs[captured_input.duplicate_of]
    if info.mutates_data or info.mutates_metadata:
        first, second = joint.captured.inputs[captured_input.duplicate_of].slot.name, captured_input.slot.name
        case = f"Encountered duplicated inputs that are mutated in the graph: `{first}` and `{second}`"
        raise RejectedRuntimeError(case, _span(joint, info), "pass a clone as one of them")


def reject_calling_convention(joint: JointProgram) -> None:
    """What `aot_export_joint_simple` refuses beside: anything that changes the calling convention."""
    for captured_input, info in zip(joint.captured.inputs, joint.meta.inputs, strict=True):
        if info.mutates_data or info.mutates_metadata:
            name = captured_input.slot.name
            case = f"aot_export_joint_simple does not support input mutations: `{name}` is written to"
            raise RejectedRuntimeError(case, _span(joint, info), "return the new value")
    for output in joint.meta.outputs:
        if output.output_type not in FRESH:
            name = joint.captured.output_names[output.index]
            case = f"aot_export_joint_simple does not support outputs that alias inputs: `{name}`"
            raise RejectedRuntimeError(
                f"{case} ({output.reason})", joint.captured.subject.span, "return a clone"
            )


def reject_pytrees(args: Any, result: Any) -> None:
    """Refuse containers within the flat list of arguments, or within the flat list of results."""
    hint = "flatten them before"
    if not isinstance(args, (list, tuple)):
        raise RejectedRuntimeError(
            "aot_export_joint_simple requires inputs to be a single list/tuple", None, hint
        )
    for index, arg in enumerate(args):
        if isinstance(arg, (list, tuple, dict)):
            case = "aot_export_joint_simple requires individual inputs not to be pytrees"
            raise RejectedRuntimeError(f"{case}: argument {index} is a {type(arg).__name__}", None, hint)
    if result is not None and result.is_leaf():
        raise RejectedRuntimeError(
            "aot_export_joint_simple requires outputs to be a single list/tuple", None, hint
        )
    if result is not None and not all(child.is_leaf() for child in result.children()):
        raise RejectedRuntimeError(
            "aot_export_joint_simple requires individual outputs not to be pytrees", None, hint
        )


def reject_loss(result: Any, loss_index: int | None) -> None:
    """Refuse results among which the loss is not the one scalar that requires grad."""
    if loss_index is None:
        raise RejectedRuntimeError(
            "trace_joint=True without output_loss_index: it is required that one of your forward outputs "
            "must be a scalar loss",
            None,
            "give its position as `output_loss_index`",
        )
    results = (result,) if isinstance(result, torch.Tensor) else result
    if not isinstance(results, (list, tuple)):
        case = "Expected forward output to be either a tensor or a list/tuple of tensors"
        raise RejectedRuntimeError(f"{case}, found {type(results).__name__}")
    for index, value in enumerate(results):
        if index != loss_index and isinstance(value, torch.Tensor) and value.requires_grad:
            raise RejectedRuntimeError(
                "Found an output of the forward that requires gradients, that was not the scalar loss: "
                f"output {index}, while output {loss_index} is the loss",
                None,
                f"detach output {index}",
            )
    loss = results[loss_index]
    if not loss.requires_grad:
        case = f"The output at index {loss_index} was marked as the loss, but it does not require gradients"
        raise RejectedRuntimeError(case)
    if loss.numel() != 1:
        case = f"We require the output marked as the loss (at index {loss_index}) to be a scalar"
        raise RejectedRuntimeError(f"{case}, but it has shape {tuple(loss.shape)}")


def _span(joint: JointProgram, info: InputAliasInfo) -> Span | None:
    if info.writes:
        return info.writes[-1].origin.location.innermost
    return joint.captured.subject.span


def _span_of_base(joint: JointProgram, captured_input: CapturedInput) -> Span | None:
    infos = [info for info in joint.meta.inputs if info.base == captured_input.base and info.writes]
    return _span(joint, infos[0]) if infos else joint.captured.subject.span
