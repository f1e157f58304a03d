"""Autograd's nodes, hooks on saved tensors and checkpoints."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch

current_autograd_node: Callable[[], Any] = torch._C._current_autograd_node
"""The autograd node whose backward is running on this thread, or None."""

next_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
"""The number that the next autograd node of this thread will get."""


@contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Within it, the hooks on saved tensors that the caller has set do not run."""
    found = []
    while (hooks := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        found.append(hooks)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(found):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


@contextmanager
def without_compiled_autograd() -> Iterator[None]:
    """Let autograd's engine run a backward itself where the user has turned on compiled autograd."""
    exchange = torch._C._dynamo.compiled_autograd.set_autograd_compiler
    before = exchange(None, False)
    try:
        yield
    finally:
        exchange(*before)


_recording = threading.local()
"""`region`: how the recording of this thread enters a checkpoint; absent where nothing records."""


@contextmanager
def checkpoints_run_once(region: Callable[[Any], AbstractContextManager[None]]) -> Iterator[None]:
    """Within it, `torch.utils.checkpoint` runs its function once, inside `region(context_fn)`."""
    _patch_checkpoint()
    before, _recording.region = getattr(_recording, "region", None), region
    try:
        yield
    finally:
        _recording.region = before


@cache
def _patch_checkpoint() -> None:
    """Let `torch.utils.checkpoint` ask the recording of its thread first; elsewhere it does as before."""
    import torch.utils.checkpoint

    module: Any = torch.utils.checkpoint
    generate, apply = module._checkpoint_without_reentrant_generator, module.CheckpointFunction.apply

    def generate_once(fn: Any, preserve: Any, context_fn: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
        region = getattr(_recording, "region", None)
        if region is None:
            yield from generate(fn, preserve, context_fn, *args, **kwargs)
            return
        with region(context_fn):
            yield

    def apply_once(function: Any, preserve: Any, *args: Any) -> Any:
        region = getattr(_recording, "region", None)
        if region is None:
            return apply(function, preserve, *args)
        differentiable = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
        with region(None), torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
            return function(*args)

    module._checkpoint_without_reentrant_generator = generate_once
    module.CheckpointFunction.apply = staticmethod(apply_once)
