"""Reject what an exported graph cannot express, with the argument's name and line.

Invariant: each message contains the words that programs for `functorch.compile` match.
"""

from typing import Any

import torch

from aotlens.analysis.records import InputAliasInfo, OutputType
from aotlens.capture.records import CapturedInput
from aotlens.ir.slots import FreeTensor
from aotlens.joint.records import JointProgram
from aotlens.model.report import Span
from aotlens.torch_api.rng import functionalizes_rng
from aotlens.unsupported import unsupported

FRESH = frozenset({OutputType.NON_ALIAS, OutputType.UNSAFE_VIEW_ALIAS})


def reject_settings() -> None:
    """Reject settings that an exported graph cannot express."""
    if functionalizes_rng():
        raise unsupported("export-functional-rng")


def reject_inexpressible(joint: JointProgram, trace_joint: bool) -> None:
    """Reject inputs that need a wrapper around the graph at each call, which an exported graph lacks.

    The wrapper reads free variables, unwraps subclasses, regenerates views from synthetic bases, and gives
    the caller's tensors their new metadata and autograd graph.
    """
    for captured_input, info in zip(joint.captured.inputs, joint.meta.inputs, strict=True):
        span = _span(joint, info)
        name = captured_input.slot.name
        if isinstance(captured_input.slot, FreeTensor):
            own = joint.captured.reachable.name_of(captured_input.free_tensor)
            raise unsupported("export-free-variable", joint.captured.subject.span, name=own)
        if captured_input.wrapped is not None:
            kind = captured_input.wrapped.meta.name
            raise unsupported("export-subclass", joint.captured.subject.span, input=name, type=kind)
        if captured_input.duplicate_of is not None:
            _reject_duplicate(joint, captured_input)
        elif info.mutates_metadata:
            raise unsupported("export-metadata-mutation", span, input=name)
        elif (
            captured_input.base is not None and joint.captured.inputs[captured_input.base].storage is not None
        ):
            others = ", ".join(
                f"`{joint.captured.inputs[index].slot.name}`" for index in captured_input.shares_storage_with
            )
            raise unsupported(
                "export-aliased-inputs", _span_of_base(joint, captured_input), input=name, others=others
            )
        elif trace_joint and info.mutates_data and (captured_input.requires_grad or info.seen_by_autograd):
            raise unsupported("export-input-with-grad", span, input=name)


def _reject_duplicate(joint: JointProgram, captured_input: CapturedInput) -> None:
    assert captured_input.duplicate_of is not None  # called only for duplicates
    info = joint.meta.inputs[captured_input.duplicate_of]
    if info.mutates_data or info.mutates_metadata:
        first, second = joint.captured.inputs[captured_input.duplicate_of].slot.name, captured_input.slot.name
        inputs = f"`{first}` and `{second}`"
        raise unsupported("export-duplicated-inputs", _span(joint, info), inputs=inputs)


def reject_calling_convention(joint: JointProgram) -> None:
    """Reject what changes the calling convention of `aot_export_joint_simple`."""
    for captured_input, info in zip(joint.captured.inputs, joint.meta.inputs, strict=True):
        if info.mutates_data or info.mutates_metadata:
            name = captured_input.slot.name
            raise unsupported("export-joint-mutation", _span(joint, info), input=name)
    for output in joint.meta.outputs:
        if output.output_type not in FRESH:
            name = joint.captured.output_names[output.index]
            raise unsupported(
                "export-joint-alias", joint.captured.subject.span, output=name, reason=output.reason
            )


def reject_nested_arguments(args: Any) -> None:
    """Reject containers within the flat list of arguments."""
    if not isinstance(args, (list, tuple)):
        raise unsupported("export-joint-inputs")
    for index, arg in enumerate(args):
        if isinstance(arg, (list, tuple, dict)):
            raise unsupported("export-joint-nested-inputs", index=index, type=type(arg).__name__)


def reject_nested_result(structure: Any) -> None:
    """Reject the pytree structure of a result that is not a flat list of leaves."""
    if structure.is_leaf():
        raise unsupported("export-joint-outputs")
    if not all(child.is_leaf() for child in structure.children()):
        raise unsupported("export-joint-nested-outputs")


def reject_loss(result: Any, loss_index: int | None) -> None:
    """Reject results unless the loss is the only scalar that requires grad."""
    if loss_index is None:
        raise unsupported("export-no-loss-index")
    results = (result,) if isinstance(result, torch.Tensor) else result
    if not isinstance(results, (list, tuple)):
        raise unsupported("export-output-type", type=type(results).__name__)
    for index, value in enumerate(results):
        if index != loss_index and isinstance(value, torch.Tensor) and value.requires_grad:
            raise unsupported("export-other-gradient", index=index, loss=loss_index)
    loss = results[loss_index]
    if not loss.requires_grad:
        raise unsupported("export-loss-without-grad", index=loss_index)
    if loss.numel() != 1:
        case = f"We require the output marked as the loss (at index {loss_index}) to be a scalar"
        raise unsupported("export-loss-shape", index=case, shape=tuple(loss.shape))


def _span(joint: JointProgram, info: InputAliasInfo) -> Span | None:
    if info.writes:
        return info.writes[-1].origin.location.innermost
    return joint.captured.subject.span


def _span_of_base(joint: JointProgram, captured_input: CapturedInput) -> Span | None:
    infos = [info for info in joint.meta.inputs if info.base == captured_input.base and info.writes]
    return _span(joint, infos[0]) if infos else joint.captured.subject.span
