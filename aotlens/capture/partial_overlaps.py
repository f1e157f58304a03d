"""Writes that eager refuses since what is read overlaps what is written, and is not the same.

Invariant: element by element operators, `copy_` and operators that write by indices raise eager's error; one
that sums up into a part of what it reads (`out=`), where eager reads what it has written, is refused with it.
Symbolic sizes get a guard on the answer.  Of sizes that only the data tells nothing is said where the answer
depends on them.
"""

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from aotlens.capture.operators import aten
from aotlens.capture.places import overlap, place_of
from aotlens.capture.tape import Tape
from aotlens.errors import RefusedRuntimeError
from aotlens.ir.program import op_name
from aotlens.torch_api.fake import FakeTensor

PRODUCTS = frozenset({"addmm", "addmv", "addbmm", "baddbmm", "addr", "bmm", "mm", "mv", "dot"})
"""Whose kernels read what they write in the order of their own, and of which eager refuses nothing."""


def refuse_partial_overlap(tape: Tape, func: Any, targets: list[Any], args: tuple[Any, ...]) -> None:
    """Call it before a write.

    Raises:
        RefusedRuntimeError: an argument shares some of its elements with a target, at other places.
    """
    by_element = func is aten.copy_.default or torch.Tag.pointwise in func.tags
    if not by_element and op_name(func).split(".")[1].strip("_") in PRODUCTS:
        return
    meet = _overlaps_in_part if by_element else _shows_other_places
    for target in targets:
        storage = tape.tracked(target).storage
        for arg in args if by_element else _read(args):
            if arg is target or type(arg) is not FakeTensor or tape.tracked(arg).storage is not storage:
                continue
            if meet(target, arg):
                raise RefusedRuntimeError(
                    f"`{op_name(func)}` of tensors that overlap in part (unsupported operation: some "
                    "elements of the input tensor and the written-to tensor refer to a single memory "
                    "location)",
                    tape.span,
                    "clone one of them before",
                )


def _read(args: tuple[Any, ...]) -> list[Any]:
    """Tensors that are read while the operator writes; one number is read before."""
    listed = [one for arg in args for one in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    return [one for one in listed if type(one) is FakeTensor and one.dim()]


def _layout(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset()


def _shows_other_places(target: Any, arg: Any) -> bool:
    """Whether two tensors have elements in common, and not each the same ones at the same places."""
    if _layout(target) == _layout(arg):
        return False
    is_known = place_of(target) is not None and place_of(arg) is not None
    return (is_known and overlap(target, arg)) or _overlaps_in_part(target, arg)


def _overlaps_in_part(left: Any, right: Any) -> bool:
    """As eager's kernels ask: of dense tensors, by the bytes from the first to the last."""
    if guard_or_false(left.numel() == 0) or guard_or_false(right.numel() == 0):
        return False
    dense = aten.is_non_overlapping_and_dense.default
    if not guard_or_false(dense(left)) or not guard_or_false(dense(right)):
        return False
    (first, end), (start, stop) = _bytes(left), _bytes(right)
    if guard_or_false(first == start) and guard_or_false(end == stop):
        strides = tuple(zip(left.stride(), right.stride(), strict=False))
        return left.dim() != right.dim() or any(guard_or_false(one != other) for one, other in strides)
    return guard_or_false(first < stop) and guard_or_false(start < end)


def _bytes(tensor: Any) -> tuple[Any, Any]:
    first = tensor.storage_offset() * tensor.element_size()
    return first, first + tensor.numel() * tensor.element_size()
