"""How a written tensor's new value lies in memory.

Invariant: it lies as the tensor does, whatever layout the operator gives its results without writing, so that
what is computed from it is laid out as in eager.
"""

from typing import Any

from torch import contiguous_format
from torch.fx.experimental.symbolic_shapes import guard_or_false

from aotlens.capture.operators import aten
from aotlens.capture.tape import Tape
from aotlens.ir.program import Node


def laid_out_as(tape: Tape, target: Any, value: Node) -> Node:
    """The value in the target's order of dimensions; as it is where the target is a part of its memory."""
    if _strides(value.val) == _strides(target):
        return value
    if not guard_or_false(aten.is_non_overlapping_and_dense.default(target)):
        return value
    steps = [step if isinstance(step, int) else step.node.hint or 0 for step in target.stride()]
    order = sorted(range(target.dim()), key=lambda dim: -steps[dim])
    rows = tape.emit(aten.permute.default, value, order)
    rows = tape.emit(aten.clone.default, rows, memory_format=contiguous_format)
    return tape.emit(aten.permute.default, rows, [order.index(dim) for dim in range(target.dim())])


def _strides(tensor: Any) -> list[Any]:
    """Of dimensions with more than one index, as numbers or expressions: nothing is asked of symbols."""
    return [
        step if isinstance(step, int) else step.node.expr
        for size, step in zip(tensor.shape, tensor.stride(), strict=True)
        if not isinstance(size, int) or size > 1
    ]
