"""Calls that read an input itself: some changes can be repeated only if nothing reads it before or after."""

from collections.abc import Iterator
from typing import Any

from aotlens.capture.events import Call
from aotlens.capture.operators import Kind, describe, is_operator
from aotlens.capture.records import Captured


def is_read(captured: Captured, tensor: Any) -> bool:
    """Return True if an operator other than a metadata mutation reads the tensor itself."""
    return any(True for _ in _reads(captured, tensor))


def is_used_between(captured: Captured, tensor: Any, first: int = -1, last: int | None = None) -> bool:
    """Return True if autograd recorded a use of the tensor after call `first` and before call `last`."""
    return any(
        first < index
        and (last is None or index < last)
        and any(map(_has_grad_fn, _flattened((call.result,))))
        for index, call in _reads(captured, tensor)
    )


def _reads(captured: Captured, tensor: Any) -> Iterator[tuple[int, Call]]:
    for index, call in enumerate(captured.calls):
        is_change = is_operator(call.func) and describe(call.func).kind is Kind.METADATA_MUTATION
        if not is_change and any(value is tensor for value in _flattened(call.args)):
            yield index, call


def _flattened(values: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the values, and the items of the lists among them."""
    for value in values:
        yield from value if isinstance(value, (list, tuple)) else (value,)


def _has_grad_fn(result: Any) -> bool:
    """Return True if the tensor has a `grad_fn`; False for written leaves and for views without one."""
    if not getattr(result, "requires_grad", False):
        return False
    try:
        return result.grad_fn is not None
    except RuntimeError:
        return False
