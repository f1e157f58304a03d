"""Random masks, drawn as floating zeros and ones and kept as booleans.

Invariant: the value that goes on is to the bit what the operator drew; between it and the draw stands a
boolean form of a quarter (`f32`) of its bytes, which is what the backward can do with.
"""

from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.capture.tape import Tape
from aotlens.ir.program import Node, draws

DRAWS_ZEROS_AND_ONES = frozenset({aten.bernoulli, aten.bernoulli_})
"""What eager's dropout draws its mask with where it has no fused kernel."""

KEPT_SMALL = "a mask of zeros and ones, as booleans: what the backward needs of it"
MADE_AGAIN = "the mask as the numbers that were drawn"


def draws_mask(func: Any) -> bool:
    return func.overloadpacket in DRAWS_ZEROS_AND_ONES and torch.is_grad_enabled()


def through_booleans(tape: Tape, drawn: Any) -> Any:
    """The drawn mask, made again from its boolean form; one that may be drawn again stays as it is.

    The boolean form belongs to no activation checkpoint: the draw is kept in any case, and this is how.
    """
    if type(drawn) is not Node or not drawn.val.is_floating_point() or not draws(drawn.op):
        return drawn
    origin = tape.origin
    try:
        tape.origin = replace(origin, stage="capture", reason=KEPT_SMALL, checkpoint=None)
        small = tape.emit(aten.ne.Scalar, drawn, 0)
        tape.origin = replace(origin, stage="capture", reason=MADE_AGAIN)
        return tape.emit(aten._to_copy.default, small, dtype=drawn.val.dtype)
    finally:
        tape.origin = origin
