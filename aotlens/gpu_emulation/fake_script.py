"""Scripts on fake tensors: the parts that keep real values.

Invariant: the order and the batches of data are real; everything computed from them is fake.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from inspect import signature
from typing import Any

import torch
import torch.utils.data

from aotlens.torch_api.fake.tensors import FakeTensor, without_fake_mode
from aotlens.torch_api.replacements import Replacement

_apply: Callable[..., Any] = vars(torch.nn.Module)["_apply"]
_iterate: Callable[..., Any] = torch.utils.data.DataLoader.__iter__
_make_loader: Callable[..., None] = torch.utils.data.DataLoader.__init__
_deepcopy: Callable[..., Any] = torch.Tensor.__deepcopy__


def fake_script_replacements() -> Iterator[Replacement]:
    """Yield the replacements for a script on fake tensors."""
    loader = torch.utils.data.DataLoader
    yield Replacement(torch.nn.Module, "_apply", apply_to_module, "fake parameters cannot be swapped")
    yield Replacement(torch.Tensor, "__deepcopy__", copy_tensor, "fake tensors have no bytes to copy")
    yield Replacement(loader, "__iter__", batches, "a sampler needs numbers")
    yield Replacement(loader, "__init__", make_loader, "fake tensors do not pass between processes")


def apply_to_module(module: Any, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
    """Replace `Module._apply`, which implements `to`, `cuda` and `half`."""
    if not any(isinstance(parameter, FakeTensor) for parameter in module._parameters.values()):
        return _apply(module, fn, recurse)
    if recurse:
        for child in module.children():
            child._apply(fn)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            module._parameters[name] = _applied(parameter, fn)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


def _applied(parameter: Any, fn: Callable[[Any], Any]) -> Any:
    """Return the parameter with `fn` applied to it and to its gradient.

    To and from the device `meta` it is another tensor, because torch does not exchange their data.
    """
    with torch.no_grad():
        other = fn(parameter)
        if (other.device.type == "meta") != (parameter.device.type == "meta"):
            return torch.nn.Parameter(other, parameter.requires_grad)
        _set_data(parameter, other)
        if parameter.grad is not None:
            _set_data(parameter.grad, fn(parameter.grad))
    return parameter


def copy_tensor(tensor: Any, memo: dict[int, Any]) -> Any:
    """Replace `Tensor.__deepcopy__`, which copies the storage of a fake tensor with a known value."""
    if not isinstance(tensor, FakeTensor) or not tensor.is_leaf:
        return _deepcopy(tensor, memo)
    if id(tensor) not in memo:
        copied: Any = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        copied.grad = deepcopy(tensor.grad, memo)
        memo[id(tensor)] = copied
    return memo[id(tensor)]


def _set_data(tensor: Any, other: Any) -> None:
    """`tensor.data = other`, including the device, which fake tensors store separately."""
    if other is not tensor:
        tensor.data = other
        tensor.fake_device = other.fake_device


def batches(loader: Any) -> Iterator[Any]:
    """Yield the loader's batches, with real tensors where its data is real."""
    with without_fake_mode():
        iterator = iter(_iterate(loader))
    while True:
        with without_fake_mode():
            try:
                batch = next(iterator)
            except StopIteration:
                return
        yield batch


def make_loader(self: Any, *args: Any, **kwargs: Any) -> None:
    """Construct a loader that runs in this process; torch rejects the other two options without workers."""
    bound = signature(_make_loader).bind(self, *args, **kwargs)
    for name, value in (("num_workers", 0), ("prefetch_factor", None), ("persistent_workers", False)):
        if name in bound.arguments:
            bound.arguments[name] = value
    _make_loader(*bound.args, **bound.kwargs)
