"""Gradients that the function writes to `.grad` of its inputs, by a backward inside it or an assignment.

Invariant: the recording starts without gradients.  A gradient that remains is an extra output; the wrapper
accumulates it into the caller's `.grad` or assigns it, as the function did.
"""

from collections.abc import Sequence
from typing import Any

import torch

from aotlens.capture.recorder import Recorder, unsupported_grad_read
from aotlens.capture.records import GradWrite, GradWriteKind, OpenInput
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.unsupported import unsupported


def grad_writes(
    recorder: Recorder, inputs: Sequence[OpenInput]
) -> tuple[tuple[GradWrite, ...], tuple[tuple[str, Any], ...]]:
    """Return the writes to `.grad` and the named gradients; remove these from the recording's tensors.
    Raises:
        UnsupportedError: the tensor has an autograd graph outside the function, the gradient has a
            grad_fn itself, or the function reads a gradient that the caller has set.
    """
    writes: list[GradWrite] = []
    leaves: list[tuple[str, Any]] = []
    for index, captured_input in enumerate(inputs):
        if not captured_input.is_tensor or captured_input.duplicate_of is not None:
            continue
        argument = (
            captured_input.argument
            if captured_input.leaf is not captured_input.free_tensor or captured_input.free_tensor is None
            else captured_input.free_tensor
        )
        _reject_outer_leaf(recorder, captured_input)
        first_access = recorder.grad_accesses.get(id(argument))
        gradient = _pop_gradient(argument) if _may_have_grad(captured_input, argument) else None
        if first_access is None and gradient is None:
            continue
        kind = {
            "read": GradWriteKind.SET_IF_NONE,
            "set": GradWriteKind.SET,
            None: GradWriteKind.ADD,
        }[first_access]
        _reject(recorder, captured_input, kind, gradient)
        origin = recorder.node_of(gradient).origin if gradient is not None else None
        writes.append(GradWrite(index, kind, origin))
        if gradient is not None:
            leaves.append((f"{captured_input.slot.name}.grad", gradient))
    return tuple(writes), tuple(leaves)


def _may_have_grad(captured_input: OpenInput, argument: Any) -> bool:
    """Return True if `.grad` can be read; for a view of a detached tensor it cannot."""
    return (captured_input.is_leaf or not captured_input.requires_grad) and argument.is_leaf


def _pop_gradient(argument: Any) -> Any:
    gradient = argument.grad
    if type(gradient) is not FakeTensor:
        return None
    argument.grad = None
    return gradient


def _reject_outer_leaf(recorder: Recorder, captured_input: OpenInput) -> None:
    """Reject a backward that in eager would continue into the autograd graph that led to the input."""
    leaf = captured_input.leaf
    own = (
        leaf is captured_input.argument
        or leaf is captured_input.free_tensor
        or not isinstance(leaf, torch.Tensor)
    )
    if not own and type(leaf.grad) is FakeTensor:
        leaf.grad = None
        raise unsupported("backward-through-non-leaf-input", recorder.span, input=captured_input.slot.name)


def _reject(recorder: Recorder, captured_input: OpenInput, kind: GradWriteKind, gradient: Any) -> None:
    name, callers = captured_input.slot.name, recorder.originals.get(id(captured_input.argument))
    if kind is GradWriteKind.SET_IF_NONE and getattr(callers, "grad", None) is not None:
        raise unsupported_grad_read(name, recorder.span)
    if gradient is not None and gradient.requires_grad:
        raise unsupported("grad-with-graph", recorder.span, input=name)
