"""Sizes at the example that a symbol was traced with: reading one adds no guard."""

from typing import Any

import torch


def number(size: Any) -> int:
    """A size as a number; 0 where only the data tells it."""
    return int(size.node.hint or 0) if isinstance(size, torch.SymInt) else int(size)


def dense_bytes(tensor: Any) -> int:
    """Bytes of the elements, laid out without gaps."""
    count = int(tensor.element_size())
    for size in tensor.shape:
        count *= number(size)
    return count
