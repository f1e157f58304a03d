"""Record `as_strided`, which views the storage under a tensor instead of the tensor itself.

Invariant: the result reads the storage's current value, and a write through it updates that value, even where
the tensor that it was called on covers less of the storage.
"""

from dataclasses import replace
from math import prod
from typing import Any

from aotlens.capture.operators import aten
from aotlens.capture.storage import (
    EXACT_OVERLAP,
    Storage,
    StorageRange,
    Tracked,
    example_value,
    storage_range_of,
)
from aotlens.capture.views import ViewStep, extent
from aotlens.model.report import Span
from aotlens.unsupported import unsupported

OTHER_ELEMENTS = frozenset(
    {
        aten.view.dtype,
        aten.view_as_real.default,
        aten.view_as_complex.default,
        aten._conj.default,
        aten._neg_view.default,
    }
)
"""View operators whose result has elements that no strides over the storage's base can address."""
MAY_REPEAT = frozenset({aten.expand.default, aten.unfold.default, aten.as_strided.default})
"""View operators whose result may contain an element several times."""


def step_from_base(storage: Storage, chain: tuple[ViewStep, ...]) -> ViewStep | None:
    """Return a chain that ends in `as_strided` as one step from the storage's current value.

    None for other chains, and where the result has elements that the base does not have.
    """
    *before, last = chain
    if last.offset is None or any(step.op in OTHER_ELEMENTS for step in before):
        return None
    size, stride = last.args[:2]
    offset = last.offset - _initial_tensor(storage).storage_offset() + storage.base.val.storage_offset()
    return replace(last, args=(size, stride, offset))


def _initial_tensor(storage: Storage) -> Any:
    """Return the storage's base with the sizes and strides that it was first recorded with."""
    return storage.base_tensor if storage.initial_tensor is None else storage.initial_tensor


def check_within_input(storage: Storage, step: ViewStep, view: Any, span: Span | None) -> None:
    """Check that an `as_strided` of an input stays within the elements that the graph receives.

    The graph receives the input's own elements; a synthetic base contains those of all overlapping inputs.

    Raises:
        UnsupportedError: the view covers other elements.
    """
    whole = _initial_tensor(storage)
    if storage.inputs and not _is_within(step, whole, view.element_size()):
        raise unsupported("as-strided-beyond-input", span)


def with_storage_offset(step: ViewStep, source: Any, tracked: Tracked, span: Span | None) -> ViewStep:
    """Return the step with an explicit storage offset; the default is the source's offset.

    Raises:
        UnsupportedError: the result exceeds a view whose elements differ from the base's.
    """
    offset = step.args[2] if len(step.args) > 2 else dict(step.kwargs).get("storage_offset")
    step = replace(step, offset=source.storage_offset() if offset is None else offset)
    if not tracked.chain or _is_within(step, source, source.element_size()):
        return step
    if any(before.op in OTHER_ELEMENTS for before in tracked.chain):
        raise unsupported("as-strided-beyond-typed-view", span)
    tracked.storage.exceeds_view = True
    return step


def overlaps_itself(tensor: Any) -> bool:
    """Return True if a tensor contains an element several times; large strided tensors are assumed to.

    Symbolic sizes count with their example values.
    """
    storage_range = storage_range_of(tensor)
    if storage_range is None or 0 in storage_range.sizes:
        return False
    reach = 1
    for stride, size in sorted(zip(storage_range.strides, storage_range.sizes, strict=True)):
        if size > 1 and stride < reach:
            count = prod(storage_range.sizes)
            return count > EXACT_OVERLAP or len(storage_range.elements()) < count
        reach += (size - 1) * stride
    return False


def _is_within(step: ViewStep, whole: Any, element_bytes: int) -> bool:
    """Return True if an `as_strided` covers only elements of a tensor.

    Its first and last byte are compared as symbols, gaps between elements with example values.
    """
    size, stride = step.args[:2]
    start, count = whole.storage_offset(), extent(whole.shape, whole.stride())
    first, end = step.offset * element_bytes, (step.offset + extent(size, stride)) * element_bytes
    if not (start * whole.element_size() <= first and end <= (start + count) * whole.element_size()):
        return False
    numbers = [example_value(number) for number in (*size, *stride, step.offset)]
    whole_range = storage_range_of(whole)
    if whole_range is None or None in numbers:
        return True
    lengths, steps = tuple(numbers[: len(size)]), tuple(numbers[len(size) : -1])
    return whole_range.contains(StorageRange(lengths, steps, numbers[-1], element_bytes))
