"""The state of inputs and outputs when the function has returned, and what it attached to its inputs.

Invariant: it is taken once, at the end of capture; eager's own bookkeeping on the fake tensors (`grad_fn`,
version counter, sizes) is the evidence, and no rule is about a single operator.  A function that would leave
a hook, a gradient or an attribute on the caller's tensor is rejected by name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from aotlens.capture.events import EventKind
from aotlens.capture.graph import Recording
from aotlens.capture.invalid_views import grad_fn_of, raises_on_grad_fn
from aotlens.capture.recorded import Snapshot
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import (
    AutogradChange,
    CapturedInput,
    InputExit,
    InputState,
    OpenInput,
    OutputExit,
)
from aotlens.capture.storage import geometry_of, version_of
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.unsupported import unsupported


def input_state(captured_input: OpenInput) -> InputState:
    """Return what writes have changed of an input by now, which is a tensor."""
    argument, storage = captured_input.argument, captured_input.storage
    assert storage is not None  # of a tensor
    return InputState(storage.version, geometry_of(argument), version_of(argument))


def grad_fns_at_exit(recording: Recording, inputs: Sequence[OpenInput]) -> list[Any]:
    """Return the `grad_fn` of each input, None where `InputExit` has none; autograd may regenerate a view's.

    Raises:
        UnsupportedError: a view cannot be regenerated, since its base changed its sizes or strides.
    """
    return [grad_fn_of(item.argument) if _has_own_grad_fn(recording, item) else None for item in inputs]


def _has_own_grad_fn(recording: Recording, captured_input: OpenInput) -> bool:
    argument = captured_input.argument
    if captured_input.storage is None or captured_input.duplicate_of is not None:
        return False
    is_view_of_base = captured_input.base is not None and argument._base is not None
    is_swapped = recording.events.has(EventKind.STORAGE_SWAP, argument)
    return argument.requires_grad and (is_swapped or not is_view_of_base)


def with_exit(
    recording: Recording, captured_input: OpenInput, grad_fn: Any, snapshot: Snapshot
) -> CapturedInput:
    """Return the input as a value, with its state at exit."""
    if captured_input.storage is None:
        return cast("CapturedInput", captured_input)
    argument = captured_input.argument
    storage = recording.tracked(argument).storage
    autograd = _autograd_change(recording, captured_input, grad_fn)
    at_exit = InputExit(
        state=input_state(captured_input),
        storage=snapshot.storage(storage),
        requires_grad=argument.requires_grad,
        grad_fn=grad_fn,
        view_base=argument._base,
        autograd=autograd,
        gradient_leaf=_gradient_leaf(captured_input, autograd),
    )
    values: Any = {"storage": snapshot.storage(captured_input.storage), "exit": at_exit}
    return cast("CapturedInput", replace(captured_input, **values))


def output_exit(tensor: Any, is_differentiable: bool) -> OutputExit:
    """Return the state of an output; autograd may regenerate a view's `grad_fn`.

    Raises:
        UnsupportedError: a view cannot be regenerated, since its base changed its sizes or strides.
    """
    grad_fn, base = grad_fn_of(tensor), tensor._base
    return OutputExit(
        tensor=tensor,
        is_differentiable=is_differentiable,
        requires_grad=tensor.requires_grad,
        grad_fn=grad_fn,
        raises_on_use=grad_fn is None and raises_on_grad_fn(tensor),
        view_base=base,
        base_requires_grad=base is not None and base.requires_grad,
        geometry=geometry_of(tensor) if tensor.layout is torch.strided else None,
    )


def _autograd_change(recording: Recording, captured_input: OpenInput, grad_fn: Any) -> AutogradChange:
    """Return how the function changed the input for autograd, other than by writes."""
    argument, base = captured_input.argument, captured_input.argument._base
    if not captured_input.requires_grad:
        as_its_base = base is not None and base.requires_grad  # then every view requires grad by itself
        is_new = argument.requires_grad and not as_its_base and argument.is_leaf
        return AutogradChange.REQUIRES_GRAD if is_new else AutogradChange.NONE
    if not argument.requires_grad:
        return AutogradChange.DETACHED
    if not captured_input.is_leaf and base is None and grad_fn is None:
        return AutogradChange.NEW_LEAF
    detached = recording.events.has(EventKind.DETACH, argument)
    written = detached and grad_fn_of(argument) is not None
    return AutogradChange.DETACHED if written else AutogradChange.NONE


def _gradient_leaf(captured_input: OpenInput, autograd: AutogradChange) -> Any:
    """Return the tensor with the caller's gradient, after the function may have set `requires_grad`."""
    argument, leaf = captured_input.argument, captured_input.leaf
    if autograd is AutogradChange.NEW_LEAF:
        return argument
    if leaf is not None:
        switched_off = isinstance(leaf, torch.Tensor) and not leaf.requires_grad
        return None if switched_off else leaf
    return argument if argument.requires_grad and argument.is_leaf else None


def reject_attachments(recorder: Recorder, inputs: Sequence[OpenInput]) -> None:
    """Reject what the function has attached to an input; no fake gradient remains on a tensor.

    Raises:
        UnsupportedError: an input has a new hook, gradient or attribute.
    """
    with_gradient = [item for item in inputs if _pop_gradients(item)]
    if with_gradient:
        raise unsupported("grad-of-input", recorder.span, input=with_gradient[0].slot.name)
    for captured_input in inputs:
        argument = captured_input.argument
        if not isinstance(argument, torch.Tensor) or argument.is_inference():
            continue
        _reject_attributes(recorder, captured_input)
        if not captured_input.is_leaf and argument.retains_grad:
            raise unsupported("retain-grad", recorder.span)
        if argument._post_accumulate_grad_hooks:
            raise unsupported("hook-on-input", recorder.span, input=captured_input.slot.name)


def reject_retain_grad(recorder: Recorder, inputs: Sequence[OpenInput], outputs: Iterable[Any]) -> None:
    """Reject `retain_grad` on an output: its `.grad` would lack what reaches it within the function.

    Raises:
        UnsupportedError: an output that is not an input retains its gradient.
    """
    for tensor in outputs:
        if type(tensor) is not FakeTensor or not tensor.retains_grad:  # False for a leaf
            continue
        if not any(captured_input.argument is tensor for captured_input in inputs):
            raise unsupported("retain-grad", recorder.node_of(tensor).origin.location.innermost)


def _pop_gradients(captured_input: OpenInput) -> bool:
    """Remove the gradients that a backward inside the function put on an input; return True if it did.

    Autograd puts them on the argument, on the leaf that it was computed from, or on the caller's own tensor.
    """
    candidates = [captured_input.leaf, captured_input.free_tensor]
    if captured_input.is_leaf or not captured_input.requires_grad:  # asking a view of a detached tensor fails
        candidates.append(captured_input.argument)
    with_gradient = [
        tensor
        for tensor in candidates
        if isinstance(tensor, torch.Tensor) and tensor.is_leaf and type(tensor.grad) is FakeTensor
    ]
    for tensor in with_gradient:
        tensor.grad = None
    return bool(with_gradient)


def _reject_attributes(recorder: Recorder, captured_input: OpenInput) -> None:
    """Reject an attribute that the function sets on a tensor: the caller's tensor would not get it."""
    attributes, initial = vars(captured_input.argument), vars(captured_input.fake)
    if type(captured_input.argument) is not FakeTensor or len(attributes) <= len(initial) + 1:  # one is ours
        return
    names = [name for name in attributes.keys() - initial.keys() if not name.startswith("_")]
    if names:
        raise unsupported(
            "attribute-of-input", recorder.span, attribute=min(names), input=captured_input.slot.name
        )
