"""Outputs that the function makes under another inference mode than its caller's.

Invariant: an output is an inference tensor, which autograd neither saves nor lets be written to, exactly if
it is one in eager.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.analysis.records import IntermediateBaseOf, OutputAliasInfo, ViewAndMutationMeta
from aotlens.capture.records import Captured
from aotlens.ir.program import Node
from aotlens.ir.subclasses import Wrapped
from aotlens.runtime.module_text import TextBuilder
from aotlens.torch_api.autograd import is_inference_mode_view
from aotlens.unsupported import unsupported

OF_THIS_MODE = """

def of_this_mode(tensor):
    \"\"\"The same memory under a tensor that is made here; `set_` takes no lazy bits.\"\"\"
    if tensor.is_conj():
        return of_this_mode(tensor.conj()).conj()
    if tensor.is_neg():
        return of_this_mode(tensor._neg_view())._neg_view()
    if not hasattr(tensor, "__tensor_flatten__"):
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor)
    names, context = tensor.__tensor_flatten__()
    inner = {name: of_this_mode(getattr(tensor, name)) for name in names}
    return type(tensor).__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())
"""


@dataclass(frozen=True, slots=True)
class LineModes:
    """The modes under which a line of `call` runs."""

    grad: bool
    inference: bool

    def block(self, builder: TextBuilder, captured: Captured) -> AbstractContextManager[None]:
        """Open a block for these modes; none for the caller's own modes."""
        if (self.grad, self.inference) == (captured.grad_enabled, captured.inference_mode):
            return nullcontext()
        if self.inference == captured.inference_mode:
            return builder.block(f"with torch.{'enable_grad' if self.grad else 'no_grad'}():")
        if self.inference:
            return builder.block(
                f"with torch.inference_mode(){', torch.enable_grad()' if self.grad else ''}:"
            )
        return builder.block(f"with torch.inference_mode(False){'' if self.grad else ', torch.no_grad()'}:")


def is_created_under_inference_mode(captured: Captured, tensor: Any) -> bool:
    """Whether a caller finds the tensor, or the view that it is, made under `inference_mode`."""
    if tensor.is_inference():
        return not captured.recorded.tracked(tensor).writable_outside_inference_mode
    return is_inference_mode_view(tensor)


def reject_other_mode(builder: TextBuilder, captured: Captured, arguments: list[str]) -> None:
    """Write eager's error, if Dynamo did not say under which mode an inference tensor is written to.

    A tensor that `detach` returned outside the mode can be written to anywhere.
    """
    inputs = zip(arguments, captured.flat_inputs, strict=False)
    needing = [
        name
        for name, captured_input in inputs
        if captured_input.storage and captured_input.storage.needs_inference_mode
    ]
    if not needing:
        return
    reason = "an inference tensor is mutated, which is allowed only in inference mode"
    condition = "if not torch.is_inference_mode_enabled():"
    with builder.step("check inference mode", reason), builder.block(condition):
        builder.add(
            *[f"{name}.copy_({name})  # raises torch's own error, and writes nothing" for name in needing]
        )


def modes_of_views(captured: Captured, info: OutputAliasInfo) -> tuple[LineModes, list[LineModes]]:
    """Return the modes at an output's base, then those of each view of its chain.

    An output without a gradient follows its caller's grad mode; one without a `grad_fn` gets none through its
    views.
    """
    caller = LineModes(captured.grad_enabled, captured.inference_mode)
    all_alike = info.geometry is not None or info.tensor.is_inference()
    if all_alike and not captured.inference_mode and is_created_under_inference_mode(captured, info.tensor):
        inside = LineModes(False, True)
        return inside, [inside] * len(info.chain)
    starts_after = info.viewed_without_grad and not info.raises_on_use
    in_recorded_modes = (
        info.requires_grad or info.viewed_without_grad or info.detached_after != len(info.chain)
    )
    steps = []
    for step in info.chain:
        inference = caller.inference if step.inference is None else step.inference
        step_modes = LineModes(step.grad_enabled and not starts_after, inference)
        steps.append(step_modes if in_recorded_modes or inference != caller.inference else caller)
    first = caller.grad and not (info.geometry is not None and info.viewed_without_grad)
    return LineModes(first, caller.inference), steps


def write_inference_tensors(builder: TextBuilder, captured: Captured, meta: ViewAndMutationMeta) -> None:
    """Write a view of each such output as a tensor made in the right mode; nothing for the usual call."""
    outputs = [
        (f"out_{info.index}", info.tensor) for info in meta.outputs if isinstance(info.value, (Node, Wrapped))
    ]
    under = {info.base.index for info in meta.outputs if isinstance(info.base, IntermediateBaseOf)}
    outputs += [(f"base_{index}", meta.bases[index].tensor) for index in sorted(under)]
    changed = [(name, tensor) for name, tensor in outputs if _needs_mode_change(captured, tensor)]
    if not changed:
        return
    mode = "" if not captured.inference_mode else "False"
    with builder.step("make inference tensors", "the function creates outputs under another inference mode"):
        with builder.block(f"with torch.inference_mode({mode}):"):
            builder.add(*[f"{name} = of_this_mode({name})" for name, _ in changed])
        for name, tensor in changed:
            if tensor.is_inference() and not is_created_under_inference_mode(captured, tensor):
                builder.add(
                    f"{name} = {name}.detach()  # allows writes, as a tensor that was detached outside"
                )


def _needs_mode_change(captured: Captured, tensor: Any) -> bool:
    if not isinstance(tensor, torch.Tensor) or tensor.is_inference() == captured.inference_mode:
        return False
    if tensor.requires_grad and tensor.is_inference():
        raise unsupported("inference-output-with-grad", captured.subject.span)
    return not tensor.requires_grad
