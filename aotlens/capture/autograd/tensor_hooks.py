"""Hooks that the function registers on its inputs; the wrapper registers them on the caller's tensors.

Invariant: such a hook sees the input's whole gradient, including what comes from outside the function, and
runs in the backward; it references no tensor of the recording.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import torch

from aotlens.capture.autograd.graph_walk import grad_fn_of
from aotlens.capture.free_variables.namespaces import filled_cells
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import OpenInput
from aotlens.capture.storage import view_base
from aotlens.errors import UnsupportedError
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported

HOOK_ATTRIBUTES = {
    "register_hook": "_backward_hooks",
    "register_post_accumulate_grad_hook": "_post_accumulate_grad_hooks",
}
"""The methods that register a hook, and the attribute in which a tensor stores it."""

RegisteredHook = tuple[int, str, Any]
"""Index of the input, method, and hook; None for `retain_grad`."""


def remove_hooks(
    recorder: Recorder, inputs: Sequence[OpenInput], results: Sequence[Any]
) -> tuple[RegisteredHook, ...]:
    """Remove the hooks from the fake inputs and return them.

    Raises:
        UnsupportedError: a hook on an input that is returned cannot be moved to the wrapper.
    """
    registered: list[RegisteredHook] = []
    for index, captured_input in enumerate(inputs):
        argument = captured_input.argument
        is_tensor = isinstance(argument, torch.Tensor) and not argument.is_inference()
        if captured_input.duplicate_of is not None or not is_tensor:
            continue
        _reject_attributes(recorder, captured_input)
        if any(argument is hooked for hooked in recorder.hooked_arguments) and _has_new_grad_fn(
            captured_input
        ):
            raise _hook_error(recorder, captured_input)
        if not captured_input.is_leaf and argument.retains_grad:
            registered.append((index, "retain_grad", None))
        for method, name in HOOK_ATTRIBUTES.items():
            hooks = getattr(argument, name) or {}
            if not hooks:
                continue
            if _has_same_grad_fn(captured_input) and not _reference_recording(recorder, hooks.values()):
                registered += [(index, method, hook) for hook in hooks.values()]
                hooks.clear()
                continue
            is_returned = any(_is_differentiable_alias(leaf, argument) for leaf in results)
            if method != "register_hook" or is_returned or _reference_containers(recorder, hooks.values()):
                raise _hook_error(recorder, captured_input)
    return tuple(registered)


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


def _has_same_grad_fn(captured_input: OpenInput) -> bool:
    """Return True if the caller's tensor has the same grad_fn after the call as before."""
    argument = captured_input.argument
    same = (
        argument.requires_grad is captured_input.requires_grad
        and grad_fn_of(argument) is captured_input.grad_fn
    )
    return same and captured_input.base is None


def _has_new_grad_fn(captured_input: OpenInput) -> bool:
    """Return True if autograd replaces the grad_fn that holds the hooks.

    That is a view of a base that is written to, or an input whose metadata mutation the wrapper repeats.
    """
    if captured_input.is_view and captured_input.argument._version != captured_input.version:
        return True
    has_new_geometry = captured_input.storage is not None and bool(captured_input.storage.metadata_mutations)
    return (captured_input.is_view or has_new_geometry) and not _has_same_grad_fn(captured_input)


def _hook_error(recorder: Recorder, captured_input: OpenInput) -> UnsupportedError:
    return unsupported("hook-on-changed-input", recorder.span, input=captured_input.slot.name)


def _is_differentiable_alias(value: Any, argument: Any) -> bool:
    """Return True if an output is the input or a differentiable view of it, which the wrapper regenerates."""
    has_gradient = isinstance(value, torch.Tensor) and value.requires_grad and not value.is_inference()
    return has_gradient and view_base(value) is view_base(argument)


def _reference_recording(recorder: Recorder, hooks: Iterable[Any]) -> bool:
    """Return True if hooks reference the recording: a fake tensor, a symbol, a copy of a container."""
    kinds = (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
    referenced = list(_referenced(hooks, 3))
    return _reference_containers(recorder, referenced) or any(
        isinstance(leaf, kinds) for leaf in pytree.tree_leaves(referenced)
    )


def _reference_containers(recorder: Recorder, hooks: Iterable[Any]) -> bool:
    """Return True if hooks reference a container among the function's arguments."""
    referenced = list(_referenced(hooks, 3)) if recorder.containers else []
    return any(value is container for value in referenced for container in recorder.containers)


def _referenced(values: Iterable[Any], depth: int) -> Iterator[Any]:
    for value in values:
        yield value
        inner: list[Any] = []
        if isinstance(value, FunctionType):
            cells = [cell.cell_contents for _, cell in filled_cells(value)]
            inner = [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        elif isinstance(value, partial):
            inner = [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, BuiltinMethodType):
            inner = [value.__self__]
        elif isinstance(value, MethodType):
            inner = [value.__func__, *getattr(value.__self__, "__dict__", {}).values()]
        if inner and depth:
            yield from _referenced(inner, depth - 1)
