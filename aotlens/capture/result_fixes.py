"""Results that are recorded in another form: strides of a written tensor, boolean masks, shared gradients.

Invariant: the values are eager's.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import contiguous_format
from torch.fx.experimental.symbolic_shapes import guard_or_false

from aotlens.capture.as_strided import overlaps_itself
from aotlens.capture.graph import Recording
from aotlens.capture.operators import aten
from aotlens.capture.storage import dimension_order
from aotlens.ir.program import Node, is_random_op


def with_layout_of(recording: Recording, target: Any, value: Node) -> Node:
    """Return the value in the target's dimension order; unchanged if the target repeats elements."""
    if _strides(value.val) == _strides(target):
        return value
    order = dimension_order(target)
    if not guard_or_false(aten.is_non_overlapping_and_dense.default(target)):
        large = [dim for dim in order if not isinstance(target.shape[dim], int) or target.shape[dim] > 1]
        is_ordered = [dim for dim in dimension_order(value.val) if dim in large] == large
        if is_ordered or overlaps_itself(target):
            return value
    rows = recording.emit(aten.permute.default, value, order)
    rows = recording.emit(aten.clone.default, rows, memory_format=contiguous_format)
    return recording.emit(aten.permute.default, rows, [order.index(dim) for dim in range(target.dim())])


def _strides(tensor: Any) -> list[Any]:
    """Return the strides of dimensions larger than 1, as numbers or expressions, without adding guards."""
    return [
        step if isinstance(step, int) else step.node.expr
        for size, step in zip(tensor.shape, tensor.stride(), strict=True)
        if not isinstance(size, int) or size > 1
    ]


MASK_OPS = frozenset({aten.bernoulli, aten.bernoulli_})
"""The operators of eager's dropout where it has no fused kernel."""

BOOLEAN_MASK = "a mask of zeros and ones, as booleans: all that the backward needs of it"
MASK_FROM_BOOLEAN = "the random mask as numbers"


def is_random_mask(func: Any) -> bool:
    return func.overloadpacket in MASK_OPS


def in_place_mask_value(
    recording: Recording, functional: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Node:
    """Return the value that an in-place random mask leaves.

    The in-place operator fills memory order, the functional one dimension order; so the dimensions are
    permuted into memory order first.
    """
    target, *rest = args
    if target.val.is_contiguous() or isinstance(rest[0] if rest else None, Node):
        return as_boolean_mask(recording, recording.emit(functional, target, *rest, **kwargs))
    order = dimension_order(target.val)
    mask = recording.emit(functional, recording.emit(aten.permute.default, target, order), *rest, **kwargs)
    back = [order.index(dim) for dim in range(len(order))]
    return recording.emit(aten.permute.default, as_boolean_mask(recording, mask), back)


def as_boolean_mask(recording: Recording, mask: Node) -> Node:
    """Recompute a random mask from its boolean form, so that the backward saves the smaller one."""
    if not (mask.val.is_floating_point() and is_random_op(mask.op) and torch.is_grad_enabled()):
        return mask
    with recording.inside_operator(replace(recording.origin, stage="capture", reason=BOOLEAN_MASK)):
        small = recording.emit(aten.ne.Scalar, mask, 0)
    with recording.inside_operator(replace(recording.origin, stage="capture", reason=MASK_FROM_BOOLEAN)):
        return recording.emit(aten._to_copy.default, small, dtype=mask.val.dtype)


SELECT = aten.where.ScalarOther
"""What replaces the product for which `is_evenly_divided_gradient` is True."""


def is_evenly_divided_gradient(func: Any, factors: tuple[Any, ...]) -> bool:
    """Return True for the gradient of `max()` and its like: a mask times the gradient divided by its sum.

    On fake tensors autograd multiplies; on real ones on CUDA alone.  Elsewhere it fills zeros, which differ
    from the product if the gradient is infinite.
    """
    if func is not aten.mul.Tensor or not all(type(factor) is Node for factor in factors):
        return False
    mask, share = factors
    if mask.val.dtype is not torch.bool or mask.val.device.type == "cuda":
        return False
    count = share.args[1] if share.op is aten.div.Tensor else None
    return type(count) is Node and count.op is aten.sum.default and count.args[0] is mask
