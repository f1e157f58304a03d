"""Writes that eager refuses since what is read overlaps what is written, and is not the same.

Invariant: element by element operators and `copy_` raise eager's error; sizes are known, or nothing is said.
"""

from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.capture.storage import has_symbols
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
    if has_symbols(left) or has_symbols(right) or 0 in (left.numel(), right.numel()):
        return False
    dense = aten.is_non_overlapping_and_dense.default
    if not dense(left) or not dense(right):
        return False
    (first, end), (start, stop) = _bytes(left), _bytes(right)
    if (first, end) == (start, stop):
        return bool(left.stride() != right.stride())
    return first < stop and start < end


def _bytes(tensor: Any) -> tuple[int, int]:
    first = tensor.storage_offset() * tensor.element_size()
    return first, first + tensor.numel() * tensor.element_size()
