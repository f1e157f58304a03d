"""Writes that eager refuses since what is read overlaps what is written, and is not the same.

Invariant: element by element operators and `copy_` raise eager's error; symbolic sizes get a guard on the
answer.  Of sizes that only the data tells nothing is said where the answer depends on them.
"""

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from aotlens.capture.operators import aten
from aotlens.capture.tape import Tape
from aotlens.errors import RefusedRuntimeError
from aotlens.ir.program import op_name
from aotlens.torch_api import FakeTensor


def refuse_partial_overlap(tape: Tape, func: Any, targets: list[Any], args: tuple[Any, ...]) -> None:
    """Call it before a write.

    Raises:
        RefusedRuntimeError: an argument shares some of its elements with a target, at other places.
    """
    if func is not aten.copy_.default and torch.Tag.pointwise not in func.tags:
        return
    for target in targets:
        storage = tape.tracked(target).storage
        for arg in args:
            if arg is target or type(arg) is not FakeTensor or tape.tracked(arg).storage is not storage:
                continue
            if _overlaps_in_part(target, arg):
                raise RefusedRuntimeError(
                    f"`{op_name(func)}` of tensors that overlap in part (unsupported operation: some "
                    "elements of the input tensor and the written-to tensor refer to a single memory "
                    "location)",
                    tape.span,
                    "clone one of them before",
                )


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
