"""The step of an optimizer that the function reaches by itself.

Invariant: it is refused before it has made any state, which would be of tensors of the recording.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from aotlens.capture.recorder import Recorder
from aotlens.errors import UnsupportedError
from aotlens.torch_api.fake import FakeTensor


@contextmanager
def outer_steps_refused(recorder: Recorder) -> Iterator[None]:
    """Within it, an optimizer of tensors that are no tensors of the recording takes no step."""
    thread = get_ident()

    def refuse(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        tensors = (tensor for group in optimizer.param_groups for tensor in group["params"])
        if get_ident() == thread and any(type(tensor) is not FakeTensor for tensor in tensors):
            raise UnsupportedError(
                f"the step of an optimizer that is made outside (`{type(optimizer).__name__}`)",
                recorder.place_here().innermost,
                "take the step outside, or use `torch.compile(fn, backend='aotlens')`",
            )

    handle = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()
