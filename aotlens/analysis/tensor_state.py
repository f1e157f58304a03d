"""What eager's bookkeeping on a fake tensor shows: geometry, `grad_fn`, version counter, writes.

Invariant: nothing here depends on a single operator.
"""

from collections.abc import Sequence
from typing import Any

from aotlens.analysis.records import Geometry
from aotlens.capture.graph import TRACKED_ATTRIBUTE
from aotlens.capture.invalid_views import invalid_view_error
from aotlens.capture.storage import Write
from aotlens.model.report import Span


def geometry_of(tensor: Any) -> Geometry:
    """Return the tensor's sizes, strides and storage offset."""
    return Geometry(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


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


def span_of_writes(writes: Sequence[Write]) -> Span | None:
    """Return the span of the last write."""
    return writes[-1].origin.location.innermost if writes else None
