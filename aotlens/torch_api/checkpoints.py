"""`torch.utils.checkpoint` in a function that is traced: the checkpointed function runs once.

Each function makes the value that replaces torch's own (scope `TRACE`); the checkpointed function runs
inside of `handler.checkpoint_region(context_fn, arguments)`.
"""

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import torch
from torch.utils import checkpoint

from aotlens.torch_api.patches.scopes import Current, handled, static

__all__ = ["run_checkpoint_once", "run_reentrant_checkpoint_once"]


def run_checkpoint_once(original: Callable[..., Iterator[None]], current: Current) -> Any:
    """The generator that torch runs around a checkpointed function: it yields once, where the function
    runs."""
    if hasattr(checkpoint, f"{original.__name__}_impl"):  # from 2.14 on, with a row of its own
        return original
    parameters = signature(original)

    def generate(*args: Any, **kwargs: Any) -> Iterator[None]:
        handler = current()
        if handler is None:
            yield from original(*args, **kwargs)
            return
        bound = parameters.bind(*args, **kwargs).arguments
        with handler.checkpoint_region(bound.get("context_fn"), bound.get("args", ())):
            yield

    return generate


@static
@handled
def run_reentrant_checkpoint_once(
    handler: Any, original: Callable[..., Any], function: Any, preserve: Any, *args: Any
) -> Any:
    """The same with `use_reentrant=True`."""
    differentiable = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
    region = handler.checkpoint_region(None, args)
    with region, torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
        return function(*args)
