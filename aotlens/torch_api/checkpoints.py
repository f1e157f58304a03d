"""`torch.utils.checkpoint` in a function that is traced."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from inspect import signature
from typing import Any

__all__ = ["RECORDING", "checkpoints_run_once"]

RECORDING = threading.local()
"""`region`: how the recording of this thread enters a checkpoint; absent where nothing records."""


@contextmanager
def checkpoints_run_once(region: Callable[..., AbstractContextManager[None]]) -> Iterator[None]:
    """Within it, `torch.utils.checkpoint` runs its function once, inside `region(context_fn, arguments)`."""
    _patch_checkpoint()
    before, RECORDING.region = getattr(RECORDING, "region", None), region
    try:
        yield
    finally:
        RECORDING.region = before


@cache
def _patch_checkpoint() -> None:
    """Let `torch.utils.checkpoint` ask the recording of its thread first; elsewhere it does as before."""
    import torch.utils.checkpoint

    module: Any = torch.utils.checkpoint
    without_reentry = "_checkpoint_without_reentrant_generator"
    if hasattr(module, f"{without_reentry}_impl"):  # from 2.14 on, where the other calls it
        without_reentry += "_impl"
    generate, apply = getattr(module, without_reentry), module.CheckpointFunction.apply
    parameters = signature(generate)

    def generate_once(*args: Any, **kwargs: Any) -> Iterator[None]:
        region = getattr(RECORDING, "region", None)
        if region is None:
            yield from generate(*args, **kwargs)
            return
        bound = parameters.bind(*args, **kwargs).arguments
        with region(bound.get("context_fn"), bound.get("args", ())):
            yield

    def apply_once(function: Any, preserve: Any, *args: Any) -> Any:
        region = getattr(RECORDING, "region", None)
        if region is None:
            return apply(function, preserve, *args)
        differentiable = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
        with region(None, args), torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
            return function(*args)

    setattr(module, without_reentry, generate_once)
    module.CheckpointFunction.apply = staticmethod(apply_once)
