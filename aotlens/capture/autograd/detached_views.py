"""Views whose base is detached in place afterwards (`detach_`, `requires_grad_(False)`).

Invariant: in eager such a view retains its grad_fn; regenerating the view would lose it.
"""

from collections.abc import Iterable
from typing import Any

import torch

from aotlens.capture.graph import TRACKED_ATTRIBUTE, Recording
from aotlens.model.report import Span


def record_detach(recording: Recording, tensor: Any) -> None:
    """Record that a tensor was detached in place."""
    recording.detached.append((tensor, recording.current_frames().innermost, recording.call_count))
    for view in recording.seen_tensors():
        if view._base is tensor and getattr(view, TRACKED_ATTRIBUTE, None) and view.requires_grad:
            recording.views_before_detach.append(recording.tracked(view).chain)


def record_requires_grad(recording: Recording, results: Iterable[Any]) -> None:
    """Record which outputs require grad, before anything asks such a view for its grad_fn.

    After a write without grad, a fake view is regenerated from its detached base and loses its grad_fn;
    eager's view does not.
    """
    if recording.views_before_detach:
        tensors = (tensor for tensor in results if isinstance(tensor, torch.Tensor))
        recording.outputs_requiring_grad = frozenset(id(tensor) for tensor in tensors if tensor.requires_grad)


def requires_grad(recording: Recording, result: Any) -> bool:
    """Return True if an output requires grad in eager."""
    return id(result) in recording.outputs_requiring_grad or bool(result.requires_grad)


def is_view_of_detached(recording: Recording, value: Any) -> bool:
    """Return True if the value is such a view, or a view of one."""
    chain = recording.tracked(value).chain
    return any(
        len(detached_chain) <= len(chain)
        and all(step is other_step for step, other_step in zip(detached_chain, chain, strict=False))
        for detached_chain in recording.views_before_detach
    )


def span_of_detaching(recording: Recording, tensor: Any) -> Span | None:
    """Return the user's expression that last detached the tensor in place; None if none did."""
    return next((span for detached, span, _ in reversed(recording.detached) if detached is tensor), None)


def calls_before_detaching(recording: Recording, tensor: Any) -> int:
    """Return how many operators had run when the tensor was last detached."""
    return next((calls for detached, _, calls in reversed(recording.detached) if detached is tensor), 0)


def was_detached(recording: Recording, tensor: Any) -> bool:
    """Return True if the tensor was detached in place."""
    return any(detached is tensor for detached, *_ in recording.detached)
