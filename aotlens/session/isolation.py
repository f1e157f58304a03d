"""Run the user's function once more, hidden from the caller's hooks and modes.

A checkpoint counts the tensors that autograd saves, its selective form counts operators, and an offloading
hook copies every saved tensor.  Invariant: code inside `isolated` reaches neither the caller's saved-tensor
hooks nor its dispatch modes, and the random state is restored.
"""

import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from aotlens.rng_state import same_random_state
from aotlens.torch_api.modes import current_dispatch_modes, without_modes
from aotlens.torch_api.saved_tensor_hooks import (
    graph_module_hooks,
    saved_tensor_hooks,
    without_saved_tensor_hooks,
)

__all__ = ["isolated", "raised_by_caller"]

EMULATION = "aotlens.gpu_emulation"
"""The package whose dispatch modes emulate a GPU."""


@contextmanager
def isolated() -> Iterator[None]:
    """Run the block without the caller's saved-tensor hooks and dispatch modes, and restore the random state.

    Hooks that are graph modules stay, because they are parts of the compiled graphs.  Modes that emulate a
    GPU stay too, because its tensors cannot be created without them.
    """
    unhooked = without_saved_tensor_hooks() if graph_module_hooks() is None else nullcontext()
    emulating = [mode for mode in current_dispatch_modes() if type(mode).__module__.startswith(EMULATION)]
    with same_random_state(), unhooked, without_modes(), ExitStack() as stack:
        for mode in emulating:
            stack.enter_context(mode)
        yield


def raised_by_caller(error: BaseException) -> bool:
    """Return True if a hook on saved tensors raised the error, as a checkpoint does to stop recomputing.

    Such an error is not about the compiled code, and running the function again would save more tensors.
    """
    codes = [code for hook in saved_tensor_hooks() if (code := _code_of(hook)) is not None]
    step = error.__traceback__
    while step is not None:
        if any(step.tb_frame.f_code is code for code in codes):
            return True
        step = step.tb_next
    return False


def _code_of(hook: object) -> types.CodeType | None:
    """Return the code that runs when the hook is called; None if it is not written in Python."""
    if isinstance(hook, torch.nn.Module):
        return None
    function: Any = getattr(hook, "__func__", hook)
    if not isinstance(function, types.FunctionType):
        function = type(function).__call__
    return function.__code__ if isinstance(function, types.FunctionType) else None
