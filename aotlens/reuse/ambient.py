"""The modes in which something was compiled, so that it can be compiled again at another time."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from aotlens.capture.modes import Modes, current_modes, set_modes


@dataclass(frozen=True, slots=True)
class Ambient:
    """What a compilation asks of its thread."""

    modes: Modes
    grad_enabled: bool
    inference: bool

    @classmethod
    def now(cls) -> "Ambient":
        return cls(current_modes(), torch.is_grad_enabled(), torch.is_inference_mode_enabled())

    @contextmanager
    def again(self) -> Iterator[None]:
        """Within it they are as they were; afterwards, as before."""
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad_enabled))
            stack.callback(set_modes, current_modes())
            set_modes(self.modes)
            yield
