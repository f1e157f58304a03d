"""Tensors that were made under `inference_mode`, as autograd treats them outside of it.

Invariant: a write is recorded exactly where eager takes it; fake tensors know a view's own state less well.
"""

from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.capture.tape import Tape
from aotlens.torch_api import raise_as_inference_write, viewed_under_inference_mode


def takes_writes_outside(func: Any, result: Any) -> bool:
    """Whether an operator gives another look at an inference tensor that may be written to anywhere.

    Only `detach` (and `.data`, which calls it) does, outside the mode; a view of what it gives does not.
    """
    inference = result.is_inference() and not torch.is_inference_mode_enabled()
    return inference and func is aten.detach.default


def refuse_inference_write(tape: Tape, target: Any) -> None:
    """Raises eager's error for a write to an inference tensor with inference mode off."""
    if not target.is_inference() or torch.is_inference_mode_enabled() or tape.plays:
        return
    if not tape.tracked(target).takes_writes_outside:
        raise_as_inference_write()


def made_inside(tape: Tape, tensor: Any) -> bool:
    """Whether a caller finds the tensor, or the view that it is, made under `inference_mode`."""
    if tensor.is_inference():
        return not tape.tracked(tensor).takes_writes_outside
    return viewed_under_inference_mode(tensor)
