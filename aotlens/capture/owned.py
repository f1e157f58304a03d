"""A module's own tensors, and calls of it with others in their place.

Invariant: after the call each place holds what it held before, also where a module or a tensor hangs twice.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.clock import exchanging
from aotlens.errors import UnsupportedError


def module_tensors(function: Any) -> dict[str, Any]:
    """A module's parameters, then its buffers, by qualified name; tied ones once."""
    if not isinstance(function, torch.nn.Module):
        return {}
    return {**dict(function.named_parameters()), **dict(function.named_buffers())}


def call_on(
    module: torch.nn.Module,
    tensors: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Callable[..., Any] | None = None,
) -> Any:
    """The module's result with `tensors`, by qualified name, in place of its own; they become what it left.

    `call` runs the module where it is not to be called itself; it takes no keywords.
    `torch.func.functional_call` leaves the stand-ins in a module that hangs at two names.
    """
    _refuse_scripted(module)
    own = module_tensors(module)
    names = {id(own[fqn]): fqn for fqn in tensors}
    places: list[tuple[dict[str, Any], str, Any]] = [
        (store, key, tensor)
        for owner in module.modules()
        for store in _stores(owner)
        for key, tensor in store.items()
        if id(tensor) in names
    ]
    with exchanging():
        try:
            for store, key, tensor in places:
                store[key] = tensors[names[id(tensor)]]
            return call(*args) if call is not None and not kwargs else module(*args, **kwargs)
        finally:
            for store, key, tensor in reversed(places):
                tensors[names[id(tensor)]] = store.get(key)
                store[key] = tensor


def _refuse_scripted(module: torch.nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            case = f"a module of TorchScript, {f'`{name}`' if name else 'which is the compiled one'}"
            raise UnsupportedError(case, None, "compile the module that `torch.jit.script` was given")


def _stores(owner: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    return owner._parameters, owner._buffers
