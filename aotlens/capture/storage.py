"""The recorded state of each storage and of each tensor on it, and storage ranges of tensors.

Positions are plain numbers in elements: a symbolic size counts with its example value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import torch

from aotlens.capture.views import ViewStep, extent
from aotlens.ir.origin import Origin
from aotlens.ir.program import Node
from aotlens.model.report import Span


@dataclass(frozen=True, slots=True)
class Write:
    """One mutation of a storage."""

    origin: Origin
    grad_enabled: bool
    chain: tuple[ViewStep, ...] = ()
    """The views that lead from the storage's base to the written tensor."""
    version: int = 0
    """The storage's version before the write."""
    is_counted: bool = True
    """Whether it advances version counters: a storage swap by `.data` and a storage resize do not."""


def span_of_writes(writes: Sequence[Write]) -> Span | None:
    """Return the span of the last write."""
    return writes[-1].origin.location.innermost if writes else None


@dataclass(slots=True, eq=False)
class Storage:
    """The mutable state of one storage during the recording."""

    base: Node
    """The current value of the first tensor that was recorded on the storage."""
    base_tensor: Any
    """That tensor."""
    inputs: tuple[int, ...] = ()
    """Flat inputs on this storage; empty for an intermediate."""
    wrapper_name: str = ""
    """The user's name of the wrapper subclass that contains it; empty for all others."""
    version: int = 0
    writes: tuple[Write, ...] = ()
    metadata_mutations: tuple[Write, ...] = ()
    """Changes of a tensor's sizes, strides or storage."""
    initial_tensor: Any = None
    """The base tensor before its own metadata mutations; None if there were none."""
    last_metadata_step: ViewStep | None = None
    """The latest metadata mutation, as a step of the tensor's chain; None after a write."""
    is_enlarged: bool = False
    """Whether an operator gave the tensor more elements than it had initially (`resize_`, `out=`)."""
    exceeds_view: bool = False
    """Whether an `as_strided` of a view on it exceeds that view."""
    bytes_before: Any = None
    """Its size before the first resize; None if it is never resized."""
    bytes_after: Any = None
    """Its size after the last resize."""
    views: dict[tuple[ViewStep, ...], Node] = field(default_factory=dict)
    """Nodes of views at the current version, by chain."""
    overlapping_inputs: Mapping[tuple[ViewStep, ...], Node] = field(default_factory=dict)
    """Overlapping graph inputs on this storage, by chain."""
    on_base: bool = False
    """Whether these have become views of the base, by a write or a metadata mutation of one of them."""
    is_inference_tensor: bool = False
    """Whether the caller's tensor is an inference tensor although the fake is not, as behind Dynamo."""
    needs_inference_mode: bool = False
    """Whether a write to it is valid only if the caller's inference mode is on."""


@dataclass(slots=True, eq=False)
class Tracked:
    """The recorded state of one tensor; an attribute of the tensor itself."""

    storage: Storage
    chain: tuple[ViewStep, ...]
    node: Node
    version: int
    writable_outside_inference_mode: bool = False
    """Whether it is an inference tensor that may be written to with inference mode off."""


_ATTRIBUTE = "_aotlens_tracked"


def find_tracked(tensor: Any) -> Tracked | None:
    """Return the recorded state of a tensor; None if it is not part of a recording."""
    tracked: Tracked | None = getattr(tensor, _ATTRIBUTE, None)
    return tracked


def set_tracked(tensor: Any, tracked: Tracked) -> None:
    """Set the recorded state of a tensor."""
    setattr(tensor, _ATTRIBUTE, tracked)


def view_base(tensor: Any) -> Any:
    """Return the base that autograd has for a view; for other tensors the tensor itself."""
    return tensor._base if tensor._base is not None else tensor


def version_of(tensor: Any) -> int:
    """Return autograd's version counter of a tensor; 0 for an inference tensor, which has none."""
    return 0 if tensor.is_inference() else tensor._version


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes, strides and storage offset of a tensor, in elements."""

    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any


def geometry_of(tensor: Any) -> Geometry:
    """Return the tensor's sizes, strides and storage offset."""
    return Geometry(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


def repeated_dims(tensor: Any) -> tuple[int, ...]:
    """Return the dimensions along which the tensor repeats the same memory, as after `expand`."""
    return tuple(
        dim
        for dim, (size, step) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))
        if type(step) is int and step == 0 and (type(size) is not int or size > 1)
    )


def index_without_repeats(tensor: Any) -> tuple[slice, ...]:
    """Return the index that selects every memory location of an expanded tensor once."""
    repeated = repeated_dims(tensor)
    return tuple(slice(1) if dim in repeated else slice(None) for dim in range(tensor.dim()))


def has_symbols(tensor: Any) -> bool:
    """Return True if any size, stride or the storage offset is a symbol."""
    geometry = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    return any(isinstance(value, torch.SymInt) for value in geometry)


EXACT_OVERLAP = 1 << 16
"""Up to this many elements, interleaved tensors are compared element by element."""


@dataclass(frozen=True, slots=True)
class StorageRange:
    """A tensor's geometry on its storage, in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    element_bytes: int

    @property
    def last(self) -> int:
        """The highest element that the tensor contains."""
        return self.offset + extent(self.sizes, self.strides) - 1

    @property
    def byte_range(self) -> tuple[int, int]:
        """Its first byte, and the byte after its last one."""
        return self.offset * self.element_bytes, (self.last + 1) * self.element_bytes

    def elements(self) -> set[int]:
        """Return the storage elements that the tensor contains."""
        positions = {self.offset}
        for size, stride in zip(self.sizes, self.strides, strict=True):
            positions = {start + index * stride for start in positions for index in range(size)}
        return positions

    def contains(self, part: "StorageRange") -> bool:
        """Return True if another range lies on its elements; False for large ranges with gaps."""
        (first, end), (start, stop) = self.byte_range, part.byte_range
        inside = first <= start and stop <= end
        if not inside or self.last + 1 - self.offset == prod(self.sizes):
            return inside
        exact = max(prod(self.sizes), prod(part.sizes)) <= EXACT_OVERLAP
        return exact and self.element_bytes == part.element_bytes and part.elements() <= self.elements()


def example_value(number: Any) -> Any:
    """Return a plain number for a size, stride or offset; None for a data-dependent one."""
    return number.node.hint if isinstance(number, torch.SymInt) else number


def dimension_order(tensor: Any) -> list[int]:
    """Return the dimensions from the largest stride to the smallest; symbols have example values.

    A data-dependent stride counts as the largest: it is a multiple of a data-dependent size.
    """
    strides = [example_value(stride) for stride in tensor.stride()]
    return sorted(range(tensor.dim()), key=lambda dim: -inf if strides[dim] is None else -strides[dim])


def storage_range_of(tensor: Any) -> StorageRange | None:
    """Return the tensor's range; None if it has a data-dependent size."""
    geometry = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    numbers = list(map(example_value, geometry))
    if any(number is None for number in numbers):
        return None
    dims = tensor.dim()
    return StorageRange(tuple(numbers[:dims]), tuple(numbers[dims:-1]), numbers[-1], tensor.element_size())


def ranges_overlap(left: Any, right: Any) -> bool:
    """Return True if two tensors on one storage overlap; large or unknown ones are assumed to.

    Symbolic sizes count with example values: the module guards that written inputs retain their geometry.
    """
    left_range, right_range = storage_range_of(left), storage_range_of(right)
    if left_range is None or right_range is None:
        return True
    counts = prod(left_range.sizes), prod(right_range.sizes)
    if 0 in counts:
        return False
    (first, end), (start, stop) = left_range.byte_range, right_range.byte_range
    if end <= start or stop <= first:
        return False
    if left_range.element_bytes != right_range.element_bytes:
        return True
    return max(counts) > EXACT_OVERLAP or bool(left_range.elements() & right_range.elements())


def contains_range(whole: Any, part: Any) -> bool:
    """Return True if a tensor lies on another's elements; False for large ones with gaps."""
    whole_range, part_range = storage_range_of(whole), storage_range_of(part)
    return whole_range is not None and part_range is not None and whole_range.contains(part_range)
