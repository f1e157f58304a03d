"""A backward that autograd refuses to run: in eager the forward still runs, and the backward raises.

Invariant: only autograd's own errors are deferred to the backward; a case that we do not support raises at
once.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.autograd.graph import get_gradient_edge

from aotlens.capture.autograd.graph_walk import autograd_nodes, saved_values
from aotlens.capture.events import EventKind
from aotlens.capture.invalid_views import is_invalid_view
from aotlens.capture.recorder import Recorder
from aotlens.errors import with_location
from aotlens.ir.origin import Origin
from aotlens.joint.records import FailingBackward
from aotlens.torch_api.modes import without_modes
from aotlens.torch_api.symbolic import restore_shape_env, shape_env_snapshot
from aotlens.unsupported import unsupported

AUTOGRAD_ERRORS = (
    "modified by an inplace operation",
    "has been detached in-place",
    "is not implemented",  # "derivative for … is not implemented"
    "and its base or another view of its base has been modified inplace",
    "Trying to backward through the graph a second time",
    "input_is_complex == grad_is_complex",  # a complex gradient for a real tensor
)

SUBCLASS_ERRORS = (
    (NotImplementedError, re.compile(r"^\w+\.\w+\.\w+$"), "`{}` is not implemented for this tensor subclass"),
    (
        AttributeError,
        re.compile("'NestedIntNode' object has no attribute 'expr'"),
        "a ragged size in a derivative (SymIntArrayRef expected to contain only concrete integers)",
    ),
)
"""Errors that a jagged tensor's rules raise on fake tensors: type, pattern, and our message."""

Run = Callable[[Sequence[int]], list[Any]]
"""Returns the gradients for some of the outputs, by their indices."""

INVALID = "returned an invalid gradient"
"""The error of an operator whose derivative is wrong in torch, and of a view that we make in another way."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of running a backward."""

    gradients: list[Any] | None
    """For the outputs whose backward does not fail; None if each fails."""
    failing: FailingBackward | None = None
    """Set if the backward of all outputs together fails."""
    failing_tangents: dict[int, FailingBackward] = field(default_factory=dict)
    """As in the joint program."""


def run_backward(
    recorder: Recorder, outputs: list[Any], run: Run, is_unchanged: Callable[[], bool]
) -> Attempt:
    """Run the backward of all outputs; if that fails, of each alone, then of those whose backward does not
    fail.

    A backward that changes what it reads, so that `is_unchanged` returns False, runs once.
    """
    every = range(len(outputs))
    gradients, failing = _run(recorder, outputs, run, every)
    if failing is None:
        return Attempt(gradients)
    alone = dict[int, FailingBackward]()
    try:
        for index in every:
            _, fails = _run(recorder, outputs, run, [index])
            if fails is not None:
                alone[index] = fails
            _drop_effects(recorder)
        rest = [index for index in every if index not in alone]
        if not rest or not is_unchanged():
            return Attempt(None, failing)
        gradients, still_failing = _run(recorder, outputs, run, rest)
    except Exception:  # noqa: BLE001 - of an output that the caller may never differentiate
        return Attempt(None, failing)
    return Attempt(None, failing) if still_failing is not None else Attempt(gradients, failing, alone)


def _run(
    recorder: Recorder, outputs: list[Any], run: Run, among: Sequence[int]
) -> tuple[list[Any] | None, FailingBackward | None]:
    environment: Any = recorder.fake_mode.shape_env
    assumed = shape_env_snapshot(environment) if environment is not None else {}
    try:
        return run(among), None
    except (RuntimeError, AttributeError) as error:
        failing = failing_backward(recorder, [outputs[index] for index in among], error)
        if failing is None:
            _check_storage_swap(recorder, error)
            raise
        if assumed:  # by a backward that never runs: autograd's message contains concrete sizes
            restore_shape_env(environment, assumed)
        return None, failing


def _check_storage_swap(recorder: Recorder, error: Exception) -> None:
    """Raise UnsupportedError for torch's own error in a backward after a storage swap.

    Such a backward reads a saved tensor on its new storage, whose sizes may be others.
    """
    if recorder.events.has(EventKind.STORAGE_SWAP) and isinstance(error, RuntimeError):
        raise unsupported("failing-backward-after-storage-swap", recorder.span, error=error) from error


def failing_backward(recorder: Recorder, outputs: list[Any], error: Exception) -> FailingBackward | None:
    """Return the error that eager's backward also raises; None for every other error."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    is_autograd_error = isinstance(error, RuntimeError) and any(phrase in first for phrase in AUTOGRAD_ERRORS)
    for kind, phrase, words in SUBCLASS_ERRORS:
        if isinstance(error, kind) and phrase.search(first):
            first, is_autograd_error = words.format(first), True
    if INVALID in first and isinstance(error, RuntimeError):
        with without_modes(), recorder.fake_mode:
            is_autograd_error = not any(is_invalid_view(tensor) for tensor in recorder.seen_tensors())
    if not is_autograd_error:
        return None
    origin = _origin_of_failure(recorder, outputs)
    _drop_effects(recorder)
    span = origin.location.innermost if origin is not None else None
    is_unimplemented = isinstance(error, NotImplementedError)
    message = with_location(first.split(" Hint:")[0].rstrip(" ."), span)
    return FailingBackward(message, origin, "NotImplementedError" if is_unimplemented else "RuntimeError")


def _origin_of_failure(recorder: Recorder, outputs: list[Any]) -> Origin | None:
    """Return the operator whose saved values have changed, or that has no derivative."""
    for node in autograd_nodes(get_gradient_edge(output).node for output in outputs):
        if _raises(node):
            return recorder.origins.forward_of(node)
    return None


def _raises(node: Any) -> bool:
    if node.name() == "NotImplemented":
        return True
    try:
        for _ in saved_values(node):
            pass
    except RuntimeError as error:
        return any(phrase in str(error) for phrase in AUTOGRAD_ERRORS)
    return False


def _drop_effects(recorder: Recorder) -> None:
    """Remove the effects of the part of the backward that ran; nothing reads its other nodes."""
    recorder.nodes[:] = [node for node in recorder.nodes if not (node.origin.backward and node.origin.effect)]
