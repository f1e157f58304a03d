"""What eager's bookkeeping on a fake tensor shows: geometry, `grad_fn`, version counter, writes.

Invariant: nothing here depends on a single operator.
"""

from collections.abc import Sequence
from typing import Any

from aotlens.analysis.records import Geometry
from aotlens.capture.graph import TRACKED_ATTRIBUTE
from aotlens.capture.invalid_views import invalid_view_error
from aotlens.capture.records import CapturedInput
from aotlens.capture.storage import Write
from aotlens.model.report import Span


def geometry_of(tensor: Any) -> Geometry:
    """Return the tensor's sizes, strides and storage offset."""
    return Geometry(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


def geometry_after(captured_input: CapturedInput) -> Geometry | None:
    """Return the geometry at the end of the function; None if it is unchanged."""
    geometry = geometry_of(captured_input.argument)
    return geometry if geometry != geometry_of(captured_input.fake) else None


def has_new_data(captured_input: CapturedInput) -> bool:
    """Return True if the storage that the input had at entry holds another value at the end."""
    storage: Any = captured_input.storage
    return storage.version > 0 and storage.base is not captured_input.node and storage.bytes_after != 0


def grad_fn_of(tensor: Any) -> Any:
    """Return the tensor's `grad_fn`; None for a view whose `grad_fn` autograd refuses to return.

    Autograd raises for a view made with grad mode off, or one of several outputs of an operator, once its
    base is written to with grad mode on.  It does the same for the compiled output.
    """
    try:
        return tensor.grad_fn
    except (RuntimeError, ValueError) as error:
        tracked = getattr(tensor, TRACKED_ATTRIBUTE, None)
        mutations = tracked.storage.metadata_mutations if tracked is not None else []
        if mutations:  # autograd regenerates the view, on a tensor that has other sizes by then
            raise invalid_view_error(span_of_writes(mutations), None) from error
        return None


def raises_on_grad_fn(tensor: Any) -> bool:
    """Return True if autograd raises when it is asked for the tensor's `grad_fn`."""
    try:
        tensor.grad_fn  # noqa: B018 - only whether it raises is asked
    except (RuntimeError, ValueError):
        return True
    return False


def has_new_grad_fn(captured_input: CapturedInput) -> bool:
    """Return True if autograd sees a write to the input: its `grad_fn` is not that at entry."""
    argument = captured_input.argument
    changed = argument.requires_grad and grad_fn_of(argument) is not captured_input.grad_fn
    return changed and not captured_input.becomes_leaf


def version_bumps(captured_input: CapturedInput) -> int:
    """Return by how much the function raises the input's version counter."""
    argument = captured_input.argument
    return 0 if argument.is_inference() else argument._version - captured_input.version


def span_of_writes(writes: Sequence[Write]) -> Span | None:
    """Return the span of the last write."""
    return writes[-1].origin.location.innermost if writes else None
