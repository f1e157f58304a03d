"""The hooks on saved tensors that the caller set."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = [
    "graph_module_hooks",
    "has_saved_tensor_hooks",
    "replace_saved_tensor_hooks",
    "saved_tensor_hooks",
    "saved_tensor_hooks_filter",
    "without_saved_tensor_hooks",
]


def graph_module_hooks() -> tuple[Any, Any] | None:
    """Return the caller's innermost hooks on saved tensors, if both are graph modules."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is None or not all(isinstance(hook, torch.fx.GraphModule) for hook in hooks):
        return None
    return hooks[0], hooks[1]


def has_saved_tensor_hooks() -> bool:
    """Return True if the caller has set hooks on saved tensors."""
    return bool(saved_tensor_hooks())


def saved_tensor_hooks() -> tuple[Callable[[Any], Any], ...]:
    """Return the pack and unpack hook for saved tensors; empty without hooks."""
    return tuple(torch._C._autograd._top_saved_tensors_default_hooks(True) or ())


def saved_tensor_hooks_filter() -> str:
    """Return torch's setting of which saved values get such hooks: `donated`, `no_static` or `all`."""
    from torch._functorch import config

    return str(config.saved_tensors_hooks_filtering_mode)


@contextmanager
def replace_saved_tensor_hooks(pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> Iterator[None]:
    """Within it, this pair replaces all hooks on saved tensors that the caller has set."""
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is None:
        yield
        return
    with without_saved_tensor_hooks():
        torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)
        try:
            yield
        finally:
            torch._C._autograd._pop_saved_tensors_default_hooks()


@contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Remove the caller's hooks on saved tensors for the block."""
    removed = []
    while (hooks := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        removed.append(hooks)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for hooks in reversed(removed):
            torch._C._autograd._push_saved_tensors_default_hooks(*hooks)
