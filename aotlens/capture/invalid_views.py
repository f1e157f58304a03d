"""Views that a metadata mutation, of themselves or of their base, makes invalid for autograd.

After a later write autograd regenerates the view's grad_fn.  Eager uses the view's own strides; fake tensors
replay the view operators, without the in-place ones, on a base whose geometry has changed.

Invariant: a recording in which the two differ is rejected.
"""

from itertools import takewhile
from typing import Any

import torch

from aotlens.capture.storage import Geometry, find_tracked, geometry_of, span_of_writes
from aotlens.capture.views import ViewStep, apply_chain
from aotlens.errors import UnsupportedError
from aotlens.model.report import Span
from aotlens.unsupported import unsupported


def check_view_is_valid(tensor: Any, span: Span | None, *, written: bool = False) -> None:
    """Check a view that is read or written after a metadata mutation on its storage.

    Raises:
        UnsupportedError: its gradient would differ from eager's.
    """
    if is_invalid_view(tensor, written=written):
        tracked = find_tracked(tensor)
        assert tracked is not None  # an invalid view is recorded
        raise invalid_view_error(span, span_of_writes(tracked.storage.metadata_mutations))


def grad_fn_of(tensor: Any) -> Any:
    """Return the tensor's `grad_fn`; None for a view for which autograd raises.

    Autograd raises for a view made with grad mode off, or one of several outputs of an operator, once its
    base is written to with grad mode on.  It does the same for the compiled output.
    """
    try:
        return tensor.grad_fn
    except (RuntimeError, ValueError) as error:
        tracked = find_tracked(tensor)
        mutations = tracked.storage.metadata_mutations if tracked is not None else ()
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


def is_invalid_view(tensor: Any, *, written: bool = False) -> bool:
    """Return True if replaying its view operators on the base gives another view.

    The gradient of a write always replays them; otherwise a view whose own last change autograd recorded has
    a `grad_fn` of that change.
    """
    own, tracked, tracked_base = _steps_from_base(tensor), find_tracked(tensor), find_tracked(tensor._base)
    if own is None or tracked is None or tracked_base is None:
        return False
    is_base_unchanged = len(tracked.chain) == len(tracked_base.chain) + len(own)
    moves = [step for step in own if step.in_place]
    is_recorded = not moves or (
        moves[-1] is tracked.storage.last_metadata_step and all(step.grad_enabled for step in moves)
    )
    if is_base_unchanged and is_recorded and not (moves and written):
        return False
    replayed, geometry = replayed_geometry(tensor), geometry_of(tensor)
    if is_base_unchanged and is_recorded and not tensor.requires_grad and replayed is not None:
        # the write gives the view its gradient, and its derivative broadcasts over dimensions of size 1
        return _without_size_one(replayed) != _without_size_one(geometry)
    return replayed != geometry


def replayed_geometry(tensor: Any) -> Geometry | None:
    """Return the geometry of the view that replaying its view operators on the base gives.

    None for a tensor that is no view, and for a base on which they raise.
    """
    own = _steps_from_base(tensor)
    if own is None:
        return None
    with torch.no_grad():
        try:
            return geometry_of(apply_chain(tuple(step for step in own if not step.in_place), tensor._base))
        except (RuntimeError, ValueError, IndexError):
            return None


def _steps_from_base(tensor: Any) -> tuple[ViewStep, ...] | None:
    """Return the steps that lead from a view's base to the view; None for a tensor that is no view."""
    tracked, tracked_base = find_tracked(tensor), find_tracked(tensor._base)
    if tracked is None or tracked_base is None:
        return None
    pairs = zip(tracked.chain, tracked_base.chain, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
    return tuple(tracked.chain[common:])


def _without_size_one(geometry: Geometry) -> tuple[Any, ...]:
    dims = zip(geometry.size, geometry.stride, strict=True)
    return *((size, stride) for size, stride in dims if size != 1), geometry.offset


def invalid_view_error(span: Span | None, mutation_span: Span | None) -> UnsupportedError:
    where = f" at line {mutation_span.line}" if mutation_span is not None else ""
    return unsupported("invalid-view", span, where=where)
