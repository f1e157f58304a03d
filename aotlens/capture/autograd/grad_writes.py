"""Gradients that the function leaves in `.grad` of its inputs: by a backward inside it, or an assignment.

Invariant: the recording starts with no gradient anywhere.  What it leaves is a further result; the wrapper
adds it to what the caller's tensor has by then, or puts it there, as the function's own steps say.
"""

from collections.abc import Sequence
from typing import Any

import torch

from aotlens.capture.recorder import Recorder, unsupported_grad_read
from aotlens.capture.records import CapturedInput, GradWrite, GradWriteKind
from aotlens.errors import UnsupportedError
from aotlens.torch_api.fake import FakeTensor


def grad_writes(
    recorder: Recorder, inputs: Sequence[CapturedInput]
) -> tuple[tuple[GradWrite, ...], tuple[tuple[str, Any], ...]]:
    """What is left where, and each tensor with a name; taken off the tensors of the recording.

    Raises:
        UnsupportedError: the gradient is that of a tensor with a history outside, or has one itself, or the
            function reads one that the caller's tensor has already.
    """
    found: list[GradWrite] = []
    leaves: list[tuple[str, Any]] = []
    for index, given in enumerate(inputs):
        if not given.is_tensor or given.duplicate_of is not None:
            continue
        argument = (
            given.argument if given.leaf is not given.outside or given.outside is None else given.outside
        )
        _refuse_outer_leaf(recorder, given)
        first = recorder.met_gradients.get(id(argument))
        gradient = _taken(argument) if _may_have(given, argument) else None
        if first is None and gradient is None:
            continue
        leaving = {
            "read": GradWriteKind.PUT_WHERE_NONE_IS,
            "set": GradWriteKind.PUT,
            None: GradWriteKind.ADDED,
        }[first]
        _refuse(recorder, given, leaving, gradient)
        origin = recorder.node_of(gradient).origin if gradient is not None else None
        found.append(GradWrite(index, leaving, origin))
        if gradient is not None:
            leaves.append((f"{given.slot.name}.grad", gradient))
    return tuple(found), tuple(leaves)


def _may_have(given: CapturedInput, argument: Any) -> bool:
    """A view of what is detached in place cannot be asked."""
    return (given.is_leaf or not given.requires_grad) and argument.is_leaf


def _taken(argument: Any) -> Any:
    gradient = argument.grad
    if type(gradient) is not FakeTensor:
        return None
    argument.grad = None
    return gradient


def _refuse_outer_leaf(recorder: Recorder, given: CapturedInput) -> None:
    """In eager such a backward goes on through what led to the input."""
    leaf = given.leaf
    own = leaf is given.argument or leaf is given.outside or not isinstance(leaf, torch.Tensor)
    if not own and type(leaf.grad) is FakeTensor:
        leaf.grad = None
        raise UnsupportedError(
            f"a backward inside the function through `{given.slot.name}`, which has a history outside of it",
            recorder.span,
            "detach it before, or call the backward outside",
        )


def _refuse(recorder: Recorder, given: CapturedInput, leaving: GradWriteKind, gradient: Any) -> None:
    name, callers = given.slot.name, recorder.originals.get(id(given.argument))
    if leaving is GradWriteKind.PUT_WHERE_NONE_IS and getattr(callers, "grad", None) is not None:
        raise unsupported_grad_read(name, recorder.span)
    if gradient is not None and gradient.requires_grad:
        raise UnsupportedError(
            f"a gradient with a history of its own (`create_graph=True`) that is left in `{name}.grad`",
            recorder.span,
            "take gradients by `torch.autograd.grad` and return them",
        )
