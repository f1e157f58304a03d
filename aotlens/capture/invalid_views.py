"""Views that got other sizes or strides in place, or were taken before the tensor under them got such.

After such a change or a write, autograd makes the view's history again.  In eager it goes by the view's own
strides; on fake tensors it runs the view operators once more, without the changes in place among them, on a
tensor that is laid out otherwise by then.

Invariant: a recording in which the two ways differ is refused.
"""

from typing import Any

import torch

from aotlens.capture.storage import Tracked
from aotlens.capture.views import ViewStep
from aotlens.errors import UnsupportedError
from aotlens.model.report import Span
from aotlens.unsupported import unsupported

TRACK = "_aotlens_tracked"


def check_view_is_valid(tensor: Any, span: Span | None, *, written: bool = False) -> None:
    """Call it where a view is written to or read, and a tensor on its storage was changed so.

    Raises:
        UnsupportedError: its gradient would be another one than eager's.
    """
    if is_invalid_view(tensor) or (written and _has_new_geometry(tensor)):
        moves = getattr(tensor, TRACK).storage.metadata_mutations
        raise invalid_view_error(span, moves[-1].origin.location.innermost)


def is_invalid_view(tensor: Any) -> bool:
    """Whether its view operators, run once more on the tensor under it, lead to another view."""
    base = tensor._base
    tracked, tracked_base = getattr(tensor, TRACK, None), getattr(base, TRACK, None)
    return (
        tracked is not None
        and tracked_base is not None
        and not _is_regenerated(base, tensor, tracked, tracked_base)
    )


def _has_new_geometry(tensor: Any) -> bool:
    """Whether the view itself got other sizes or strides: the gradient of a write takes those from before."""
    tracked, tracked_base = getattr(tensor, TRACK, None), getattr(tensor._base, TRACK, None)
    if (
        tracked is None
        or tracked_base is None
        or tracked.chain[: len(tracked_base.chain)] != tracked_base.chain
    ):
        return False
    own = tracked.chain[len(tracked_base.chain) :]
    view_steps = tuple(step for step in own if not step.in_place)
    if len(view_steps) == len(own):
        return False
    with torch.no_grad():
        return _geometry(_applied(view_steps, tensor._base)) != _geometry(tensor)


def invalid_view_error(span: Span | None, moved: Span | None) -> UnsupportedError:
    where = f" at line {moved.line}" if moved is not None else ""
    return unsupported("invalid-view", span, where=where)


def _is_regenerated(base: Any, tensor: Any, tracked: Tracked, tracked_base: Tracked) -> bool:
    """Whether the view operators lead from the tensor as it lies there to the view as it is."""
    common = 0
    while (
        common < min(len(tracked.chain), len(tracked_base.chain))
        and tracked.chain[common] is tracked_base.chain[common]
    ):
        common += 1
    own = tracked.chain[common:]
    moves = [step for step in own if step.in_place]
    own_last = not moves or (
        moves[-1] is tracked.storage.last_metadata_step and all(step.grad_enabled for step in moves)
    )
    if common == len(tracked_base.chain) and own_last:
        return True
    with torch.no_grad():
        try:
            regenerated = _applied(tuple(step for step in own if not step.in_place), base)
        except (RuntimeError, ValueError, IndexError):
            return False
    return bool(_geometry(regenerated) == _geometry(tensor))


def _applied(chain: tuple[ViewStep, ...], tensor: Any) -> Any:
    for step in chain:
        regenerated = step.op(tensor, *step.args, **dict(step.kwargs))
        tensor = regenerated if step.result is None else regenerated[step.result]
    return tensor


def _geometry(tensor: Any) -> tuple[Any, ...]:
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
