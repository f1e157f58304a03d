"""Arguments of one operator call that overlap on a storage.

Invariant: a write that eager rejects because of overlap is rejected here; one that the engine cannot record
is unsupported.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from aotlens.capture.graph import Recording
from aotlens.capture.operators import aten
from aotlens.capture.storage import has_symbols, ranges_overlap, storage_range_of
from aotlens.ir.program import op_name
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.unsupported import unsupported

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
    steps = ((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.storage_offset()
    return first * tensor.element_size(), (first + sum(steps) + 1) * tensor.element_size()


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
    items = [item for arg in args for item in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    return [item for item in items if type(item) is FakeTensor and item.dim()]


def _layout(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset()


def _overlap_at_other_indices(target: Any, arg: Any) -> bool:
    """Return True if two tensors overlap, and not with the same elements at the same indices."""
    if _layout(target) == _layout(arg):
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
