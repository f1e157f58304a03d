"""Symbolic numbers in brackets (`x[n.item()]`, `x[n]`), which torch would look at.

Invariant: such an index selects along its dimension, as the number would; all others are torch's own.
"""

from typing import Any

import torch

from aotlens.ir.sizes import is_symbol
from aotlens.torch_api.fake import FakeTensor


def with_numbers(index: Any) -> Any:
    """The index with the number in place of each whole number in a tensor, as torch's own kernel reads it."""
    if type(index) is tuple:
        return tuple(map(with_numbers, index))
    is_number = type(index) is FakeTensor and not index.dim() and index.dtype in WHOLE
    return index.item() if is_number else index


WHOLE = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
"""A byte in brackets is a mask."""


def at_symbols(func: Any, tensor: Any, index: Any, *value: Any) -> Any:
    """`tensor[index]`, read or written to by `func`, with such indices taken out; NotImplemented without."""
    items = index if isinstance(index, tuple) else (index,)
    if not any(map(is_symbol, items)):
        return NotImplemented
    tensor, rest = _selected(tensor, items)
    return tensor if not rest and not value else func(tensor, rest or (...,), *value)


def _selected(tensor: Any, items: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The tensor at these indices, and the others."""
    left = tensor.dim() - sum(_width(item) for item in items if item is not ...)
    dim, rest = 0, list[Any]()
    for item in items:
        if is_symbol(item):
            tensor = tensor.select(dim, item)
        else:
            rest.append(item)
            dim += left if item is ... else _width(item)
    return tensor, tuple(rest)


def _width(item: Any) -> int:
    """How many dimensions of the indexed tensor an index is for."""
    if item is None or isinstance(item, bool):
        return 0
    if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.dim()
    return 1
