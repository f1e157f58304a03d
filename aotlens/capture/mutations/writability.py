"""Check whether a recorded function may write to a tensor, also to inference tensors.

Invariant: a write that eager rejects raises eager's error; a write that the engine cannot record raises
UnsupportedError.
"""

from math import prod
from typing import Any

import torch

from aotlens.capture.as_strided import overlaps_itself
from aotlens.capture.events import EventKind
from aotlens.capture.graph import Recording
from aotlens.capture.invalid_views import check_view_is_valid
from aotlens.capture.operators import aten
from aotlens.capture.storage import Tracked, find_tracked, repeated_dims, storage_range_of
from aotlens.ir.program import op_name
from aotlens.torch_api.autograd import has_version_counter, raise_as_inference_write
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported


def record_inference_argument(recording: Recording, argument: Any, value: Any) -> None:
    """Record that the caller passes an inference tensor for an argument.

    Dynamo's fake is not an inference tensor, and its graphs are recorded with inference mode off.
    """
    if not value.is_inference():
        return
    tracked = recording.tracked(argument)
    if argument.is_inference():
        tracked.writable_outside_inference_mode = has_version_counter(value)
    else:
        tracked.storage.is_inference_tensor = True


def with_writability_of(like: Any, argument: Any) -> Any:
    """Return the fake argument with the inference flags that torch's own check of a write needs."""
    if not argument.is_inference() or like is None or not has_version_counter(like):
        return argument
    with torch.inference_mode(False):
        return argument.detach()


def is_writable_outside_inference_mode(func: Any, source: Tracked, result: Any) -> bool:
    """Return True if an operator returns an alias of an inference tensor that is writable in any mode.

    Only `detach` outside inference mode does (also by `.data`); views of its result do not.
    """
    if func is not aten.detach.default or torch.is_inference_mode_enabled():
        return False
    return result.is_inference() or source.storage.is_inference_tensor


def reject_inference_write(recording: Recording, target: Any) -> None:
    """Raise eager's error for a write to an inference tensor with inference mode off.

    If Dynamo's fake hides it, each call has to check: the caller's mode is not known before.
    """
    if torch.is_inference_mode_enabled() or recording.is_replay:
        return
    tracked = recording.tracked(target)
    if tracked.writable_outside_inference_mode:
        return
    if target.is_inference():
        raise_as_inference_write()
    if tracked.storage.is_inference_tensor:
        tracked.storage.needs_inference_mode = True


FILL_OPS = frozenset({aten.zero_.default, aten.fill_.Scalar})
"""Writes of one value to every element, which may repeat on the same memory."""


def check_writable(recording: Recording, target: Any, func: Any, args: tuple[Any, ...]) -> None:
    """Raise UnsupportedError or RejectedRuntimeError if the tensor cannot be written to."""
    reject_inference_write(recording, target)
    tracked = recording.tracked(target)
    if tracked.storage.metadata_mutations and target._base is not None and _has_gradient(target, args):
        check_view_is_valid(target, recording.span, written=True)
    if recording.events.has(EventKind.STORAGE_SWAP) and _has_gradient(target, args):
        _reject_view_of_swapped_input(recording, target)
    base = tracked.storage.base
    is_constant = base.constant is not None or target in recording.real_tensors
    if is_constant or any(base is node for node, _ in recording.real_tensors.inputs):
        raise unsupported("write-to-captured-tensor", recording.span, operator=op_name(func))
    is_integral = not (target.is_floating_point() or target.is_complex())
    if func is aten._foreach_copy_.default and is_integral and _has_gradient(target, args):
        raise unsupported("foreach-copy-to-integers", recording.span)
    if repeated_dims(target) and func not in FILL_OPS:
        raise unsupported("operator-on-expanded", recording.span, operator=op_name(func))
    if func not in FILL_OPS and overlaps_itself(target):
        raise unsupported("operator-on-overlapping-elements", recording.span, operator=op_name(func))
    _reject_part_of_repeating_input(recording, target)
    if tracked.storage.wrapper_name and len(tracked.storage.inputs) > 1:
        raise unsupported("aliased-subclass-inputs", recording.span, tensor=tracked.storage.wrapper_name)


def _reject_view_of_swapped_input(recording: Recording, target: Any) -> None:
    """Reject a write to a view on a swapped storage: autograd replaces the grad_fn of its base, an input."""
    tracked_base = find_tracked(target._base)
    if (
        tracked_base is not None
        and tracked_base.storage.inputs
        and tracked_base.storage is not recording.tracked(target).storage
    ):
        raise unsupported("write-to-swapped-view", recording.span)


def _reject_part_of_repeating_input(recording: Recording, target: Any) -> None:
    """Reject a write to a part of an input with symbolic sizes, which has no synthetic base."""
    storage = recording.tracked(target).storage
    if not storage.inputs or not recording.tracked(target).chain or not overlaps_itself(storage.base_tensor):
        return
    whole, part = storage_range_of(storage.base_tensor), storage_range_of(target)
    if whole is None or part is None or prod(whole.sizes) != prod(part.sizes):
        name = f"`{storage.base.name}`, " if not storage.version else ""
        raise unsupported("write-to-repeated-memory", recording.span, input=name)


def _has_gradient(target: Any, args: tuple[Any, ...]) -> bool:
    """Return True if autograd records the write, through the target or the other arguments."""
    return torch.is_grad_enabled() and any(
        isinstance(arg, torch.Tensor) and arg.requires_grad for arg in (target, *pytree.tree_leaves(args))
    )
