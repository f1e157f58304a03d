"""Views whose base is detached in place afterwards (`detach_`, `requires_grad_(False)`).

Invariant: in eager such a view retains its grad_fn; regenerating the view would lose it.
"""

from collections.abc import Iterable
from typing import Any

import torch

from aotlens.capture.graph import TRACKED_ATTRIBUTE, Recording


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
