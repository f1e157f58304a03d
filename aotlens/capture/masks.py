"""Random masks: drawn as floating zeros and ones, and kept as booleans.

Invariant: the value that goes on is to the bit what eager draws.  Between it and the draw stands a boolean
form of a quarter (`f32`) of its bytes, which is all that the backward needs.
"""

from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.capture.tape import Tape
from aotlens.ir.program import Node, draws

DRAWS_ZEROS_AND_ONES = frozenset({aten.bernoulli, aten.bernoulli_})
"""What eager's dropout draws its mask with where it has no fused kernel."""

KEPT_SMALL = "a mask of zeros and ones, as booleans: all that the backward needs of it"
MADE_AGAIN = "the mask as the numbers that were drawn"


def draws_mask(func: Any) -> bool:
    return func.overloadpacket in DRAWS_ZEROS_AND_ONES


def drawn_in_place(tape: Tape, functional: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
    """The value that a write of a mask leaves.

    The write draws in the order of the memory, the functional operator in the order of the dimensions; so the
    dimensions are brought into the order of the memory for the draw.
    """
    target, *rest = args
    if target.val.is_contiguous() or isinstance(rest[0] if rest else None, Node):
        return through_booleans(tape, tape.emit(functional, target, *rest, **kwargs))
    stride = target.val.stride()
    order = sorted(range(len(stride)), key=lambda dim: -stride[dim])
    drawn = tape.emit(functional, tape.emit(aten.permute.default, target, order), *rest, **kwargs)
    back = [order.index(dim) for dim in range(len(order))]
    return tape.emit(aten.permute.default, through_booleans(tape, drawn), back)


def through_booleans(tape: Tape, drawn: Node) -> Node:
    """The drawn mask made again from its boolean form, where a gradient may be taken and no second draw."""
    if not (drawn.val.is_floating_point() and draws(drawn.op) and torch.is_grad_enabled()):
        return drawn
    origin = tape.origin
    try:
        tape.origin = replace(origin, stage="capture", reason=KEPT_SMALL)
        small = tape.emit(aten.ne.Scalar, drawn, 0)
        tape.origin = replace(origin, stage="capture", reason=MADE_AGAIN)
        return tape.emit(aten._to_copy.default, small, dtype=drawn.val.dtype)
    finally:
        tape.origin = origin
