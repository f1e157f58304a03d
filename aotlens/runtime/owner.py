"""Calling a compiled module: its parameters and buffers are read from the module on each call."""

from collections.abc import Callable
from typing import Any

import torch


def bind_module(
    module: torch.nn.Module, call: Callable[..., Any], rebound: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """`call` with the module's tensors first; a tensor that the user exchanges is seen at the next call.

    With `rebound` names of buffers or attributes, `call` gives their new tensors beside the result.
    """
    places = tensor_places(module)

    def call_module(*args: Any, **kwargs: Any) -> Any:
        return call(*[store[key] for store, key in places], *args, **kwargs)

    def call_and_bind(*args: Any, **kwargs: Any) -> Any:
        result, tensors = call_module(*args, **kwargs)
        for fqn, tensor in tensors.items():
            owner, _, name = fqn.rpartition(".")
            layer = module.get_submodule(owner)
            store = layer._buffers if name in layer._buffers else vars(layer)
            store[name] = tensor
        return result

    return call_and_bind if rebound else call_module


def tensor_places(module: torch.nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Where each parameter and then each buffer hangs."""
    return [*_places(module, "_parameters"), *_places(module, "_buffers")]


def _places(module: torch.nn.Module, kind: str) -> list[tuple[dict[str, Any], str]]:
    """Where each distinct tensor of one kind hangs, in the order of `named_parameters`."""
    seen: set[int] = set()
    found = []
    for owner in module.modules():
        store = getattr(owner, kind)
        for key, tensor in store.items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found.append((store, key))
    return found
