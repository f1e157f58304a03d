"""Find tensors that a plain function reads through its closure or its module's globals.

They cannot be copied, as the function would not see the copy, so they are restored after each run.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from aotlens.verify.tensors.values import is_leaf, same_values


def free_variables(fn: Callable[..., Any], depth: int = 2) -> dict[str, Any]:
    """Return tensors and modules by the name under which the function, or one that it calls, reads them."""
    fn = inspect.unwrap(fn)
    if not isinstance(fn, types.FunctionType):
        return {}
    closure = inspect.getclosurevars(fn)
    values: dict[str, Any] = {}
    for name, value in {**closure.globals, **closure.nonlocals}.items():
        if isinstance(value, Tensor | nn.Module):
            values[name] = value
        elif isinstance(value, types.FunctionType) and depth and not value.__module__.startswith("torch"):
            values = free_variables(value, depth - 1) | values
    return values


@contextmanager
def restoring_tensors(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Restore values, `requires_grad` and `.grad` of these tensors if the block changes them.

    A buffer that the block writes with a gradient is a leaf again afterwards, unless it is a view.
    """
    saved = [(tensor, tensor.detach().clone(), tensor.requires_grad, tensor.is_leaf) for tensor in tensors]
    leaves = [tensor for tensor in tensors if is_leaf(tensor)]
    gradients = [(leaf, leaf.grad, value) for leaf, value in zip(leaves, copy_gradients(leaves), strict=True)]
    try:
        yield
    finally:
        for tensor, value, requires_grad, was_leaf in saved:
            if was_leaf and not tensor.is_leaf and not tensor._is_view():
                tensor.detach_()
            _restore(tensor, value)
            if tensor.is_leaf:
                tensor.requires_grad_(requires_grad)
        for leaf, gradient, gradient_value in gradients:
            if gradient is not None and gradient_value is not None:
                _restore(gradient, gradient_value)
            if leaf.grad is not gradient:
                leaf.grad = gradient


def copy_gradients(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """Return a copy of each tensor's `.grad`; None for an empty one and for a non-leaf."""
    gradients = (tensor.grad if is_leaf(tensor) else None for tensor in tensors)
    return [None if gradient is None else gradient.detach().clone() for gradient in gradients]


def _restore(tensor: Tensor, value: Tensor) -> None:
    with torch.no_grad():
        if tensor.shape != value.shape:
            tensor.data = value
        elif not same_values(tensor, value):
            tensor.copy_(value)
