"""Views whose tensor is taken off its history in place (`detach_`, `requires_grad_(False)`) after that.

Invariant: eager goes on with the history that such a view has; no call that takes the view again could.
"""

from collections.abc import Iterable
from typing import Any

import torch

from aotlens.capture.graph import TRACKED_ATTRIBUTE, Recording
from aotlens.model.report import Span


def record_detach(tape: Recording, tensor: Any) -> None:
    """Call it where a tensor has lost its history."""
    tape.detached.append((tensor, tape.current_frames().innermost, tape.call_count))
    for view in tape.seen_tensors():
        if view._base is tensor and getattr(view, TRACKED_ATTRIBUTE, None) and view.requires_grad:
            tape.views_before_detach.append(tape.tracked(view).chain)


def record_requires_grad(tape: Recording, results: Iterable[Any]) -> None:
    """Call it when the function has returned, before anyone asks such a view for its history.

    Asked after a write without grad, a fake one is taken again from what has no history now; eager's has one.
    """
    if tape.views_before_detach:
        tensors = (tensor for tensor in results if isinstance(tensor, torch.Tensor))
        tape.outputs_requiring_grad = frozenset(id(tensor) for tensor in tensors if tensor.requires_grad)


def requires_grad(tape: Recording, result: Any) -> bool:
    """Whether a result requires grad as eager's does."""
    return id(result) in tape.outputs_requiring_grad or bool(result.requires_grad)


def is_view_of_detached(tape: Recording, value: Any) -> bool:
    """Whether the value is such a view, or was taken of one."""
    chain = tape.tracked(value).chain
    return any(
        len(detached_chain) <= len(chain)
        and all(step is other_step for step, other_step in zip(detached_chain, chain, strict=False))
        for detached_chain in tape.views_before_detach
    )


def span_of_detaching(tape: Recording, tensor: Any) -> Span | None:
    """The user's expression that took the tensor off its history last; None where none did."""
    return next((span for detached, span, _ in reversed(tape.detached) if detached is tensor), None)


def calls_before_detaching(tape: Recording, tensor: Any) -> int:
    """How many operators had run when the tensor lost its history last."""
    return next((calls for detached, _, calls in reversed(tape.detached) if detached is tensor), 0)


def was_detached(tape: Recording, tensor: Any) -> bool:
    """Whether the tensor was taken off its history in place."""
    return any(detached is tensor for detached, *_ in tape.detached)
