"""A module's own tensors, and calls of the module with other tensors in their place.

Invariant: after the call each binding is restored, also if a module or a tensor has several names, and so is
each attribute that torch's own hooks rebind at each call of a layer, such as a normalised weight.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.clock import swapping_tensors
from aotlens.unsupported import unsupported


def module_tensors(function: Any) -> dict[str, Any]:
    """Return a module's parameters, then its buffers, by qualified name; tied ones once."""
    if not isinstance(function, torch.nn.Module):
        return {}
    return {**dict(function.named_parameters()), **dict(function.named_buffers())}


def is_owned(module: Any, fqn: str) -> bool:
    """Return True if the module has a parameter or buffer of this qualified name, also if it is tied."""
    path, _, name = fqn.rpartition(".")
    return any(name in store for store in _stores(module.get_submodule(path)))


def call_with_tensors(
    module: torch.nn.Module,
    tensors: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Callable[..., Any] | None = None,
) -> Any:
    """Call the module with `tensors` in place of its own; update them with what the module rebinds.

    If the module rebinds a tied tensor under only some of its names, these are added to `tensors`, and so are
    the attributes that its hooks rebind. `call` replaces the call of the module; it accepts no keywords.
    `torch.func.functional_call` fails to restore a module that has two names.
    """
    _reject_scripted(module)
    own = module_tensors(module)
    names = {id(own[fqn]): fqn for fqn in tensors}
    bindings: list[tuple[str, dict[str, Any], str, Any]] = [
        (fqn, store, key, tensor)
        for fqn, owner in module.named_modules()
        for store in _stores(owner)
        for key, tensor in store.items()
        if id(tensor) in names
    ]
    attributes = [
        (f"{fqn}.{name}" if fqn else name, vars(owner), name, vars(owner)[name])
        for fqn, owner in module.named_modules()
        for name in sorted(names_bound_by_hooks(owner))
    ]
    with swapping_tensors():
        try:
            for _, store, key, tensor in bindings:
                store[key] = tensors[names[id(tensor)]]
            return call(*args) if call is not None and not kwargs else module(*args, **kwargs)
        finally:
            passed = dict(tensors)
            for fqn, store, key, tensor in bindings:
                own_name = f"{fqn}.{key}" if fqn else key
                if own_name in passed or store.get(key) is not passed[names[id(tensor)]]:
                    tensors[own_name] = store.get(key)
                store[key] = tensor
            for own_name, store, key, before in attributes:
                if store[key] is not before:
                    tensors[own_name] = store[key]
                store[key] = before


def _reject_scripted(module: torch.nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            which = f"`{name}`" if name else "which is the compiled one"
            raise unsupported("torchscript-module", module=which)


def _stores(owner: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    return owner._parameters, owner._buffers


def names_bound_by_hooks(layer: torch.nn.Module) -> frozenset[str]:
    """Return attributes that a `torch.nn.utils` hook rebinds before the layer reads them."""
    hooks = layer._forward_pre_hooks.values()
    names = (_name_of(hook) for hook in hooks if type(hook).__module__.startswith("torch.nn.utils."))
    return frozenset(name for name in names if name in vars(layer))


def _name_of(hook: Any) -> Any:
    return getattr(hook, "name", None) or getattr(hook, "_tensor_name", None)
