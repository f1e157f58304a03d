"""The values that a script gets where it reads one of a fake tensor.

Invariant: a read is recorded with its line; integers, which may determine sizes, also on their own.
"""

from collections.abc import Iterator
from itertools import cycle

import torch

from aotlens.ir.origin import Frames

__all__ = ["READS_A_VALUE", "Placeholders", "placeholder_value"]

READS_A_VALUE = "aten._local_scalar_dense.default"
"""The operator that `item`, `bool`, `float` and `int` of a tensor call."""
OTHER_INTEGERS = (2, 3)
"""Placeholders that differ from `placeholder_value` and, for the limits of a slice, from each other."""


def placeholder_value(dtype: torch.dtype) -> bool | int | float:
    """Return the value that the script reads from a fake tensor: False, 1, or 0.0.

    A condition on values mostly asks for a rare case (`isnan().any()`); with a size of 0, batches are empty.
    """
    if dtype is torch.bool:
        return False
    return 0.0 if dtype.is_floating_point or dtype.is_complex else 1


class Placeholders:
    """The values, and the lines that read them."""

    def __init__(self) -> None:
        self.values_read: dict[Frames, int] = {}
        """How often each line reads a value of a fake tensor."""
        self.integers_read: set[Frames] = set()
        """The lines among them that read an integer, which may determine sizes."""
        self.integers_varied: set[Frames] = set()
        """The lines that read other integers during `vary_integers`."""
        self._integers: Iterator[int] | None = None

    def vary_integers(self, is_varied: bool) -> None:
        """From now on, return different integers for consecutive reads, or the same again."""
        self._integers = cycle(OTHER_INTEGERS) if is_varied else None

    def read(self, dtype: torch.dtype, frames: Frames) -> bool | int | float:
        """Return the value that a line reads."""
        self.values_read[frames] = self.values_read.get(frames, 0) + 1
        value = placeholder_value(dtype)
        if type(value) is not int:
            return value
        self.integers_read.add(frames)
        if self._integers is None:
            return value
        self.integers_varied.add(frames)
        return next(self._integers)
