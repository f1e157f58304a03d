"""Functions of torch's that are replaced while memory is observed, since they pass by its hooks.

Invariant: each replacement does what torch's function does, and notifies a callback.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.torch_api.replacements import Replacement

__all__ = ["module_copies", "rng_state_reads"]


def rng_state_reads(on_read: Callable[[torch.Tensor], None]) -> Replacement:
    """Return the replacement of the name that checkpoints use; Dynamo needs its own one unchanged."""
    get_state = torch.get_rng_state

    def get_rng_state() -> torch.Tensor:
        state = get_state()
        on_read(state)
        return state

    return Replacement(torch, "get_rng_state", get_rng_state, "allocates memory without an operator")


def module_copies(on_copy: Callable[[torch.nn.Module, str, object], None]) -> Replacement:
    """Return the replacement that sees copies of modules, such as averaged weights; they register nothing.

    The callback is the hook for the registration of a parameter or buffer.
    """
    restore = torch.nn.Module.__setstate__

    def setstate(module: torch.nn.Module, state: Any) -> None:
        restore(module, state)
        on_copy(module, "", None)

    return Replacement(torch.nn.Module, "__setstate__", setstate, "a copy registers no parameters")
