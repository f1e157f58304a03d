"""`tensor_split` at a tensor of indices, whose kernel reads them from memory.

Invariant: each index is asked for as `item()`; one that every call has is a number, others are symbols.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from aotlens.torch_api import FakeTensor

NAMES = ("at", "indices", "sections", "indices_or_sections", "tensor_indices_or_sections")


@contextmanager
def splits_at_numbers() -> Iterator[None]:
    """Within the block, `torch.tensor_split` and the method of tensors take numbers out of such a tensor."""
    module: Any = torch
    before = module.tensor_split
    module.tensor_split = module.Tensor.tensor_split = lambda *args, **kwargs: before(*_numbers(args, kwargs))
    try:
        yield
    finally:
        module.tensor_split = before
        del module.Tensor.tensor_split  # inherited again


def _numbers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments by position: tensor, indices or count, dimension."""
    given = dict(zip(("input", "at", "dim"), args, strict=False)) | kwargs
    at = next(given[name] for name in NAMES if name in given)
    return given["input"], at.tolist() if type(at) is FakeTensor else at, given.get("dim", 0)
