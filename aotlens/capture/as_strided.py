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
    has_symbols,
    storage_range_of,
)
from aotlens.capture.views import ViewStep
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


def is_as_strided_chain(chain: tuple[ViewStep, ...]) -> bool:
    """Return True if the chain ends in an `as_strided` that can be taken of the storage's base."""
    last = chain[-1].op
    return last is aten.as_strided.default and all(step.op not in OTHER_ELEMENTS for step in chain[:-1])


def from_base(storage: Storage, step: ViewStep) -> ViewStep:
    """Return the `as_strided` step relative to the storage's current value, with its offset adjusted."""
    size, stride = step.args[:2]
    offset = step.offset - _initial_tensor(storage).storage_offset() + storage.base.val.storage_offset()
    return replace(step, args=(size, stride, offset))


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
    input_range, view_range = storage_range_of(whole), storage_range_of(view)
    if not storage.inputs or input_range is None or view_range is None:
        return
    if type(step.offset) is int:
        # After a write, a value begins elsewhere in memory.
        view_range = replace(view_range, offset=step.offset)
    if not (input_range.contains(view_range) and (not has_symbols(whole) or _is_inside(step, whole))):
        raise unsupported("as-strided-beyond-input", span)


def with_storage_offset(step: ViewStep, source: Any, tracked: Tracked, span: Span | None) -> ViewStep:
    """Return the step with an explicit storage offset; the default is the source's offset.

    Raises:
        UnsupportedError: the result exceeds a view whose elements differ from the base's.
    """
    offset = step.args[2] if len(step.args) > 2 else dict(step.kwargs).get("storage_offset")
    step = replace(step, offset=source.storage_offset() if offset is None else offset)
    chain = tracked.chain
    if not chain or (_is_inside(step, source) and not _covers_gap(step, source)):
        return step
    if any(before.op in OTHER_ELEMENTS for before in chain):
        raise unsupported("as-strided-beyond-typed-view", span)
    tracked.storage.exceeds_view = True
    return step


def reject_write_under_as_strided(span: Span | None) -> None:
    """Reject a write under an `as_strided` that exceeds its view.

    Eager's autograd replays that view on the base, ours on the view.

    Raises:
        UnsupportedError: always.
    """
    raise unsupported("as-strided-beyond-written-view", span)


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


def as_strided_chain(chain: tuple[ViewStep, ...], tensor: Any, span: Span | None) -> tuple[ViewStep, ...]:
    """Return a chain with one `as_strided` that views the base with the tensor's strides.

    Raises:
        UnsupportedError: the chain changes the dtype or conjugates, so no strides of the base give the
            tensor.
    """
    if any(step.op in OTHER_ELEMENTS for step in chain):
        raise unsupported("write-to-repeated-elements", span)
    geometry = (list(tensor.shape), list(tensor.stride()), tensor.storage_offset())
    return (ViewStep(aten.as_strided.default, geometry, offset=geometry[2]),)


def _is_inside(step: ViewStep, source: Any) -> bool:
    first, end = source.storage_offset(), source.storage_offset() + _extent(source.shape, source.stride())
    return bool(first <= step.offset and step.offset + _extent(*step.args[:2]) <= end)


def _covers_gap(step: ViewStep, source: Any) -> bool:
    """Return True if the view covers an element between those of `source`; unknown sizes count as no gap."""
    size, stride = step.args[:2]
    numbers = [example_value(number) for number in (*size, *stride, step.offset)]
    source_range = storage_range_of(source)
    if source_range is None or None in numbers or 0 in numbers[: len(size)]:
        return False
    lengths, steps = tuple(numbers[: len(size)]), tuple(numbers[len(size) : -1])
    return not source_range.contains(StorageRange(lengths, steps, numbers[-1], source_range.element_bytes))


def _extent(sizes: Any, strides: Any) -> Any:
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
