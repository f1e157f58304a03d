"""Tensors that torch's own hooks bind to a layer at each call: a normed or pruned weight.

Invariant: after the run each such attribute holds what it held before; the new tensor is a result of the
graph, which the wrapper binds as eager's hook does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def names_bound_by_hooks(layer: torch.nn.Module) -> frozenset[str]:
    """Plain attributes that a hook of `torch.nn.utils` makes anew before the layer reads them."""
    hooks = layer._forward_pre_hooks.values()
    found = (_name_of(hook) for hook in hooks if type(hook).__module__.startswith("torch.nn.utils."))
    return frozenset(name for name in found if name in vars(layer))


def _name_of(hook: Any) -> Any:
    return getattr(hook, "name", None) or getattr(hook, "_tensor_name", None)


@contextmanager
def bound_by_hooks(function: Any) -> Iterator[list[tuple[str, Any]]]:
    """Within it, hooks may bind; the list then holds each new tensor by its qualified name."""
    layers = function.named_modules() if isinstance(function, torch.nn.Module) else ()
    places = [
        (f"{fqn}.{name}" if fqn else name, vars(layer), name, vars(layer)[name])
        for fqn, layer in layers
        if layer._forward_pre_hooks
        for name in sorted(names_bound_by_hooks(layer))
    ]
    found: list[tuple[str, Any]] = []
    try:
        yield found
        found += [(fqn, store[name]) for fqn, store, name, before in places if store[name] is not before]
    finally:
        for _, store, name, before in places:
            store[name] = before
