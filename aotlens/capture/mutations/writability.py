"""Check a write before it is recorded: the written tensor, and arguments that overlap it.

Invariant: a write that eager rejects raises eager's error; a write that the engine cannot record raises
UnsupportedError.
"""

from collections.abc import Iterable
from itertools import combinations
from math import prod
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from aotlens.capture.as_strided import overlaps_itself
from aotlens.capture.autograd.graph_walk import requires_grad
from aotlens.capture.events import EventKind
from aotlens.capture.graph import Recording
from aotlens.capture.invalid_views import check_view_is_valid
from aotlens.capture.operators import aten
from aotlens.capture.storage import (
    Tracked,
    find_tracked,
    geometry_of,
    has_symbols,
    ranges_overlap,
    repeated_dims,
    storage_range_of,
)
from aotlens.capture.views import extent
from aotlens.ir.program import op_name
from aotlens.torch_api.autograd import has_version_counter, raise_as_inference_write
from aotlens.torch_api.fake.tensors import FakeTensor
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
    is_constant = base.constant is not None or id(target) in recording.real_tensors
    if is_constant or any(base is node for node, _ in recording.outside_inputs):
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
    return torch.is_grad_enabled() and any(map(requires_grad, (target, *pytree.tree_leaves(args))))


Named = tuple[str, Any, bool]
"""An argument's name, one of its tensors, and whether the operator writes to it."""


def reject_overlap(recording: Recording, operator: str, arguments: Iterable[Named]) -> None:
    """Reject a call in which a written tensor overlaps another argument: the call writes to copies.

    Raises:
        UnsupportedError: two arguments overlap, at least one of which is written.
    """
    for (name, tensor, written), (other_name, other, other_written) in combinations(arguments, 2):
        if (written or other_written) and _overlap(recording, tensor, other):
            names = (name, other_name) if written else (other_name, name)
            raise unsupported(
                "overlapping-arguments", recording.span, operator=operator, written=names[0], other=names[1]
            )


def _overlap(recording: Recording, left: Any, right: Any) -> bool:
    if recording.tracked(left).storage is not recording.tracked(right).storage:
        return False
    if not (has_symbols(left) or has_symbols(right)):
        return ranges_overlap(left, right)
    (first, end), (start, stop) = _byte_range(left), _byte_range(right)
    return not (guard_or_false(end <= start) or guard_or_false(stop <= first))


def _byte_range(tensor: Any) -> tuple[Any, Any]:
    """Return the first byte of a tensor and the byte after its last; empty sizes count as one."""
    first, count = tensor.storage_offset(), extent(tensor.shape, tensor.stride())
    return first * tensor.element_size(), (first + count) * tensor.element_size()


def tensors_of(value: Any) -> list[Any]:
    """Return the tensors of one argument."""
    items = value if isinstance(value, (list, tuple)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]


PRODUCTS = frozenset({"addmm", "addmv", "addbmm", "baddbmm", "addr", "bmm", "mm", "mv", "dot"})
"""Operators whose kernels read and write in an order of their own; eager rejects no overlap there."""


def reject_partial_overlap(
    recording: Recording, func: Any, targets: list[Any], args: tuple[Any, ...]
) -> None:
    """Check the arguments before a write.

    Raises:
        RejectedRuntimeError: an argument shares elements with a target, at other indices.
    """
    by_element = func is aten.copy_.default or torch.Tag.pointwise in func.tags
    if not by_element and op_name(func).split(".")[1].strip("_") in PRODUCTS:
        return
    meet = _overlaps_in_part if by_element else _overlap_at_other_indices
    for target in targets:
        storage = recording.tracked(target).storage
        for arg in args if by_element else _tensors_read(args):
            if arg is target or type(arg) is not FakeTensor or recording.tracked(arg).storage is not storage:
                continue
            if meet(target, arg):
                raise unsupported("partial-overlap", recording.span, operator=op_name(func))


def _tensors_read(args: tuple[Any, ...]) -> list[Any]:
    """Return the tensors that are read during the write; a zero-dimensional one is read before."""
    return [item for arg in args for item in tensors_of(arg) if type(item) is FakeTensor and item.dim()]


def _overlap_at_other_indices(target: Any, arg: Any) -> bool:
    """Return True if two tensors overlap, and not with the same elements at the same indices."""
    if geometry_of(target) == geometry_of(arg):
        return False
    is_known = storage_range_of(target) is not None and storage_range_of(arg) is not None
    return (is_known and ranges_overlap(target, arg)) or _overlaps_in_part(target, arg)


def _overlaps_in_part(left: Any, right: Any) -> bool:
    """Return True if the byte ranges of two dense tensors overlap, which is what eager's kernels check."""
    if guard_or_false(left.numel() == 0) or guard_or_false(right.numel() == 0):
        return False
    dense = aten.is_non_overlapping_and_dense.default
    if not guard_or_false(dense(left)) or not guard_or_false(dense(right)):
        return False
    (first, end), (start, stop) = _byte_range(left), _byte_range(right)
    if guard_or_false(first == start) and guard_or_false(end == stop):
        strides = tuple(zip(left.stride(), right.stride(), strict=False))
        return left.dim() != right.dim() or any(
            guard_or_false(left_stride != right_stride) for left_stride, right_stride in strides
        )
    return guard_or_false(first < stop) and guard_or_false(start < end)
