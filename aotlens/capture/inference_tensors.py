"""Tensors that were made under `inference_mode`, as autograd treats them outside of it.

Invariant: a write is recorded exactly where eager takes it; fake tensors know a view's own state less well.
"""

from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.capture.storage import Tracked
from aotlens.capture.tape import Tape
from aotlens.torch_api.autograd import has_version_counter, is_inference_mode_view, raise_as_inference_write


def note_inference(tape: Tape, argument: Any, value: Any) -> None:
    """What a recording knows of an argument for which the caller passes an inference tensor.

    Dynamo's fake of one is none, and its graphs are recorded with the caller's inference mode off.
    """
    if not value.is_inference():
        return
    tracked = tape.tracked(argument)
    if argument.is_inference():
        tracked.takes_writes_outside = has_version_counter(value)
    else:
        tracked.storage.of_inference = True


def as_writable_as(like: Any, argument: Any) -> Any:
    """The fake tensor for an argument, as torch's own check of a write has to find it."""
    if not argument.is_inference() or like is None or not has_version_counter(like):
        return argument
    with torch.inference_mode(False):
        return argument.detach()


def takes_writes_outside(func: Any, source: Tracked, result: Any) -> bool:
    """Whether an operator gives another look at an inference tensor that may be written to anywhere.

    Only `detach` (and `.data`, which calls it) does, outside the mode; a view of what it gives does not.
    """
    if func is not aten.detach.default or torch.is_inference_mode_enabled():
        return False
    return result.is_inference() or source.storage.of_inference


def refuse_inference_write(tape: Tape, target: Any) -> None:
    """Raises eager's error for a write to an inference tensor with inference mode off.

    Of one that Dynamo's fake hides, each call has to raise it: the caller's mode is not known before.
    """
    if torch.is_inference_mode_enabled() or tape.plays:
        return
    tracked = tape.tracked(target)
    if tracked.takes_writes_outside:
        return
    if target.is_inference():
        raise_as_inference_write()
    if tracked.storage.of_inference:
        tracked.storage.needs_inference_mode = True


def made_inside(tape: Tape, tensor: Any) -> bool:
    """Whether a caller finds the tensor, or the view that it is, made under `inference_mode`."""
    if tensor.is_inference():
        return not tape.tracked(tensor).takes_writes_outside
    return is_inference_mode_view(tensor)
