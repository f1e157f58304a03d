"""Where tensors lie on their storage, as numbers: a symbol counts with the value that it came with."""

from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from aotlens.capture.storage import EXACT_OVERLAP


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor's place on its storage, in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    element_bytes: int

    @property
    def last(self) -> int:
        """The highest element that the tensor reaches."""
        return self.offset + sum(
            (size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True)
        )

    def elements(self) -> set[int]:
        """The elements of the storage that the tensor shows."""
        found = {self.offset}
        for size, stride in zip(self.sizes, self.strides, strict=True):
            found = {start + at * stride for start in found for at in range(size)}
        return found

    def holds(self, part: "Place") -> bool:
        """Whether all of another lies on its elements; large ones with gaps hold none."""
        inside = self.offset * self.element_bytes <= part.offset * part.element_bytes
        inside &= (part.last + 1) * part.element_bytes <= (self.last + 1) * self.element_bytes
        if not inside or self.last + 1 - self.offset == prod(self.sizes):
            return inside
        exact = max(prod(self.sizes), prod(part.sizes)) <= EXACT_OVERLAP
        return exact and self.element_bytes == part.element_bytes and part.elements() <= self.elements()


def place_of(tensor: Any) -> Place | None:
    """None where only the data tells a size."""
    given = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    numbers = [value.node.hint if isinstance(value, torch.SymInt) else value for value in given]
    if any(number is None for number in numbers):
        return None
    dims = tensor.dim()
    return Place(tuple(numbers[:dims]), tuple(numbers[dims:-1]), numbers[-1], tensor.element_size())


def overlap(left: Any, right: Any) -> bool:
    """Whether two tensors on one storage have an element in common; large or unknown ones are said to.

    Symbolic sizes count as they came: the module checks that inputs of which one is written lie as they did.
    """
    one, other = place_of(left), place_of(right)
    if one is None or other is None:
        return True
    counts = prod(one.sizes), prod(other.sizes)
    if 0 in counts:
        return False
    if one.element_bytes != other.element_bytes:
        return _bytes_meet(one, other)
    if one.last < other.offset or other.last < one.offset:
        return False
    return max(counts) > EXACT_OVERLAP or bool(one.elements() & other.elements())


def contains(whole: Any, part: Any) -> bool:
    """Whether all of a tensor lies on elements of another on its storage; large ones with gaps do not."""
    one, other = place_of(whole), place_of(part)
    return one is not None and other is not None and one.holds(other)


def _bytes_meet(one: Place, other: Place) -> bool:
    (first, last), (start, end) = (
        (place.offset * place.element_bytes, (place.last + 1) * place.element_bytes) for place in (one, other)
    )
    return first < end and start < last
