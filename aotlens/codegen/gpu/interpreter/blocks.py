"""Fewer, larger programs: the interpreter's cost is per program, not per element.

Invariant: no block exceeds the largest that Inductor chooses, since Inductor omits masks on that assumption.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

MOST_ELEMENTS = 1 << 17
"""The most elements of one program, so that its values stay small."""
FIXED = ("_tem_", "_for_")
"""In the names of kernels with inlined block sizes: templates, lists of tensors."""


def enlarge(name: str, kernel: Any, largest_blocks: Mapping[str, int]) -> None:
    """Enlarge the block sizes of the first configuration, which the interpreter uses."""
    if any(mark in name for mark in FIXED):
        return
    sizes: dict[str, int] = kernel.configs[0].kwargs
    hints: Mapping[str, int] = kernel.size_hints or {}
    axes = [axis for axis in ("XBLOCK", "YBLOCK", "ZBLOCK") if axis in sizes]
    for axis in axes:
        wanted = _power_of_two(hints.get(axis[0].lower(), 1))
        others = prod(sizes[other] for other in axes if other != axis) * _reduced(sizes, hints)
        room = max(1, MOST_ELEMENTS // max(1, others))
        largest = min(wanted, _power_of_two(room + 1) // 2, largest_blocks[axis[0]])
        sizes[axis] = max(sizes[axis], largest)


def _reduced(sizes: Mapping[str, int], hints: Mapping[str, int]) -> int:
    """Return the elements along the reduction that one program holds at once."""
    looped = [size for axis, size in sizes.items() if axis.startswith("R")]
    whole = [_power_of_two(size) for axis, size in hints.items() if axis.startswith("r")]
    return prod(looped) if looped else prod(whole)


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not less than the number."""
    return 1 << max(0, number - 1).bit_length()
