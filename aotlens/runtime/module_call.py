"""Calling a compiled module: its parameters and buffers are read from the module on each call."""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.clock import COMPILING, ModuleSwapCounter

ModuleSlot = tuple[dict[str, Any], str]
"""A module's dictionary of tensors, and the key in it."""


def bind_module(
    module: torch.nn.Module, call: Callable[..., Any], rebound: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """Return `call` with the module's tensors first; a tensor that the user replaces is used from the next
    call on.

    With `rebound` names of tensors of the module, `call` also returns their new values, which are assigned.
    """
    slots, ties = _distinct_slots(module)

    def call_module(*args: Any, **kwargs: Any) -> Any:
        # While another thread records this module, its slots hold fake tensors.  Then a recording has begun
        # that had not ended before the read: wait for its end and read again.
        ended_before = ModuleSwapCounter.ended
        tensors = [store[key] for store, key in slots]
        if ModuleSwapCounter.begun != ended_before:
            with COMPILING:  # held by a thread while it records
                tensors = [store[key] for store, key in slots]
        for (store, key), first in ties:
            if store.get(key) is not tensors[first]:
                raise AssertionError(_untied_error(module, (store, key), slots[first]))
        return call(*tensors, *args, **kwargs)

    def call_and_bind(*args: Any, **kwargs: Any) -> Any:
        result, tensors = call_module(*args, **kwargs)
        for fqn, tensor in tensors.items():
            owner, _, name = fqn.rpartition(".")
            layer = module.get_submodule(owner)
            stores = (layer._parameters, layer._buffers)
            next((store for store in stores if name in store), vars(layer))[name] = tensor
        return result

    return call_and_bind if rebound else call_module


def tensor_slots(module: torch.nn.Module) -> list[ModuleSlot]:
    """Return the slot of each parameter, then of each buffer; a tied tensor has several slots."""
    return [(store, key) for store, key in _all_slots(module) if store[key] is not None]


def absent_slots(function: Any) -> tuple[ModuleSlot, ...]:
    """Return the slots of a module whose parameter or buffer is None."""
    slots = _all_slots(function) if isinstance(function, torch.nn.Module) else ()
    return tuple((store, key) for store, key in slots if store[key] is None)


def _all_slots(module: torch.nn.Module) -> list[ModuleSlot]:
    return [
        (getattr(owner, kind), key)
        for kind in ("_parameters", "_buffers")
        for owner in module.modules()
        for key in getattr(owner, kind)
    ]


def _distinct_slots(module: torch.nn.Module) -> tuple[list[ModuleSlot], list[tuple[ModuleSlot, int]]]:
    """Return each tensor's first slot, in the order of `named_parameters`; other slots with their first."""
    first_index: dict[int, int] = {}
    distinct: list[ModuleSlot] = []
    ties: list[tuple[ModuleSlot, int]] = []
    for store, key in tensor_slots(module):
        first = first_index.setdefault(id(store[key]), len(distinct))
        if first == len(distinct):
            distinct.append((store, key))
        else:
            ties.append(((store, key), first))
    return distinct, ties


def _untied_error(module: torch.nn.Module, slot: ModuleSlot, first: ModuleSlot) -> str:
    names = {
        (id(store), key): ".".join(filter(None, (owner, key)))
        for owner, layer in module.named_modules()
        for store in (layer._parameters, layer._buffers)
        for key in store
    }
    name, first_name = (names.get((id(store), key), key) for store, key in (slot, first))
    return (
        f"compiled `{type(module).__name__}`: `{name}` was the same tensor as `{first_name}` when it was"
        " compiled, and is another tensor now; recompile it"
    )
