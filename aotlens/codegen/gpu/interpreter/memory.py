"""Check that every address that a kernel accesses is inside of an argument's storage.

Invariant: the check precedes the access, so a wrong kernel cannot damage this process.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch


class OutOfBoundsError(Exception):
    """An access outside of all arguments."""


@dataclass(slots=True)
class Memory:
    """The storages of the running launch; mutable: set again for each launch."""

    starts: Any = field(default_factory=lambda: np.zeros(0, np.uint64))
    ends: Any = field(default_factory=lambda: np.zeros(0, np.uint64))

    def allow(self, arguments: Iterable[Any]) -> None:
        """Allow accesses to the storages of these arguments only."""
        storages = [value.untyped_storage() for value in arguments if isinstance(value, torch.Tensor)]
        ranges = sorted({(s.data_ptr(), s.data_ptr() + s.nbytes()) for s in storages if s.nbytes()})
        self.starts = np.array([start for start, _ in ranges], np.uint64)
        self.ends = np.array([end for _, end in ranges], np.uint64)

    def check(self, verb: str, pointers: Any, mask: Any) -> None:
        """Raises OutOfBoundsError."""
        addresses = pointers.data
        if mask is not None:
            active = np.broadcast_to(np.asarray(getattr(mask, "data", mask)), addresses.shape).astype(bool)
            addresses = addresses[active]
        addresses = addresses.ravel().astype(np.uint64)
        if not addresses.size:
            return
        width = np.uint64(max(1, pointers.get_element_ty().primitive_bitwidth // 8))
        if not self.starts.size:
            raise OutOfBoundsError(f"{verb} {addresses.size} elements, and no argument has memory")
        index = np.searchsorted(self.starts, addresses, "right").astype(np.int64) - 1
        outside = (index < 0) | (addresses + width > self.ends[np.maximum(index, 0)])
        if outside.any():
            raise OutOfBoundsError(
                f"{verb} {int(outside.sum())} of {addresses.size} elements outside of its arguments' memory,"
                f" {self._distance(int(addresses[outside][0]), int(width))}"
            )

    def _distance(self, address: int, width: int) -> str:
        starts, ends = self.starts.astype(object), self.ends.astype(object)
        after, before = min(abs(address - end) for end in ends), min(abs(start - address) for start in starts)
        side, distance = ("after the end", after) if after <= before else ("before the start", before)
        return f"the first one {distance // width + (side == 'after the end')} elements {side} of the nearest"


def checking(memory: Memory, verb: str, original: Any, pointer: int, mask: int) -> Any:
    """Wrap a builder method with the check; the positions are those of its arguments.

    Masks and values are made contiguous, because native code reads a broadcast one as raw memory.
    """

    def access(self: Any, *arguments: Any) -> Any:
        memory.check(verb, arguments[pointer], arguments[mask] if mask >= 0 else None)
        return original(self, *map(_contiguous, arguments))

    return access


def _contiguous(value: Any) -> Any:
    data = getattr(value, "data", None)
    if isinstance(data, np.ndarray) and not data.flags.c_contiguous:
        return type(value)(np.ascontiguousarray(data), value.dtype)
    return value
