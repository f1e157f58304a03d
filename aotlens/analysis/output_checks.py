"""Outputs that the wrapper cannot regenerate: views of a foreign storage or `grad_fn`, and views with hooks.

Invariants: an output that passes lies on the storage of the tensor at which its autograd graph starts.  The
wrapper regenerates an output from its base outside the recorded graph, so nothing between the base and the
output has a hook.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from aotlens.analysis.bases import Bases
from aotlens.analysis.records import OutputAliasInfo, OutputType
from aotlens.analysis.storage_swaps import span_of_storage_swap
from aotlens.capture.autograd.graph_walk import autograd_path
from aotlens.capture.events import EventKind
from aotlens.capture.invalid_views import grad_fn_of
from aotlens.capture.recorded import StorageState
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import span_of_writes, view_base
from aotlens.capture.subclasses import is_wrapper
from aotlens.model.report import Span
from aotlens.torch_api.autograd import gradient_sizes
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported


def check_view_storage(captured: Captured, value: Any) -> None:
    """Check that an output shares storage and `grad_fn` with the tensor that autograd knows as its base.

    Raises:
        UnsupportedError: it does not, and the wrapper cannot regenerate it.
    """
    recorded, at_exit = captured.recorded, captured.exit_of(value)
    base = at_exit.view_base
    if (
        base is not None
        and recorded.is_view_of_detached(value)
        and not _can_view_before_detach(captured, value)
    ):
        raise unsupported("view-before-detach", captured.span_of(EventKind.DETACH, base))
    autograd_base = at_exit.start
    if not at_exit.requires_grad or not recorded.events.has(EventKind.STORAGE_SWAP, autograd_base):
        return _check_shares_base_storage(captured, value)
    if (
        autograd_base.requires_grad
        and grad_fn_of(autograd_base) is not None
        and gradient_sizes(autograd_base) != tuple(autograd_base.shape)
    ):
        raise unsupported("storage-of-other-sizes", span_of_storage_swap(captured, autograd_base))
    is_input = captured.input_of(autograd_base) is not None
    if not is_input and recorded.tracked(autograd_base).storage is not recorded.tracked(value).storage:
        raise unsupported("view-before-storage-swap", span_of_storage_swap(captured, autograd_base))
    return None


def _check_shares_base_storage(captured: Captured, value: Any) -> None:
    recorded, base = captured.recorded, captured.exit_of(value).view_base
    if base is None or not captured.exit_of(value).requires_grad or recorded.find(base) is None:
        return
    if recorded.tracked(base).storage is not recorded.tracked(value).storage:
        kind = next((type(tensor).__name__ for tensor in (base, value) if is_wrapper(tensor)), "")
        if kind:
            raise unsupported(
                "view-into-subclass",
                _span_of_producer(captured, value) or captured.subject.span,
                subclass=kind,
            )
        raise unsupported("view-with-swapped-storage", span_of_storage_swap(captured, value))


def _span_of_producer(captured: Captured, value: Any) -> Span | None:
    """Return the span of the user's expression that returned a tensor; None for a wrapper.

    The calls contain an operator on wrappers as what its subclass ran, at the user's expression.
    """
    for call in captured.calls:
        if any(tensor is value for tensor in pytree.tree_leaves(call.result)):
            return call.origin.location.innermost
    return None


def _can_view_before_detach(captured: Captured, value: Any) -> bool:
    """Return True if a view of an input that is detached later can be regenerated before the detach.

    The wrapper then takes the view from the caller's tensor as it came.  If the input has another geometry at
    the end, or another storage, that is another view.  A write with grad mode on may give the view a
    `grad_fn` of the write.
    """
    recorded, base = captured.recorded, captured.exit_of(value).view_base
    storage = recorded.tracked(value).storage
    if recorded.tracked(base).storage is not storage or storage.metadata_mutations:
        return False
    if recorded.events.has(EventKind.STORAGE_SWAP, base):
        return False
    is_input = captured.input_of(base) is not None
    return is_input and not base.requires_grad and not any(write.grad_enabled for write in storage.writes)


def check_output_grad_fn(captured: Captured, captured_input: CapturedInput, value: Any) -> None:
    """Check that the `grad_fn` of an output on an input's storage is the input's.

    Raises:
        UnsupportedError: it is not.
    """
    at_exit = captured.exit_of(value)
    has_grad_fn = at_exit.has_grad_fn or (at_exit.requires_grad and at_exit.raises_on_use)
    is_detached = captured_input.requires_grad and not captured_input.at_exit.requires_grad
    if has_grad_fn and is_detached and not captured.recorded.is_view_of_detached(value):
        span = captured.span_of(EventKind.DETACH, captured_input.argument)
        raise unsupported("view-before-detach", span)
    if at_exit.requires_grad and captured.recorded.events.has(EventKind.STORAGE_SWAP, at_exit.start):
        raise unsupported(
            "output-on-input-storage",
            span_of_storage_swap(captured, at_exit.start),
            input=captured_input.slot.name,
        )


def check_not_detached(captured: Captured, value: Any) -> None:
    """Check that the autograd graph of an output does not start at a detached tensor on a shared storage.

    Raises:
        UnsupportedError: it does, by a write with a gradient or an assignment to `.data`.
    """
    if not _starts_at_detached_tensor(captured, value):
        return
    autograd_base, recorded = captured.exit_of(value).start, captured.recorded
    span = recorded.events.span(EventKind.STORAGE_SWAP, autograd_base) or span_of_writes(
        recorded.tracked(autograd_base).storage.writes
    )
    raise unsupported("output-with-own-grad-fn", span or captured.subject.span)


def _starts_at_detached_tensor(captured: Captured, value: Any) -> bool:
    """Return True if an output's autograd graph starts at another tensor than its storage's other outputs.

    The wrapper regenerates all outputs on one storage from one base, so it could not give this one its own
    `grad_fn`.  An input, or its base, is no such start: it exists outside the call.
    """
    autograd_base, recorded = captured.exit_of(value).start, captured.recorded
    if not captured.exit_of(value).requires_grad or is_wrapper(value) or grad_fn_of(autograd_base) is None:
        return False
    if any(
        autograd_base is view_base(captured_input.argument)
        for captured_input in captured.inputs
        if captured_input.is_tensor
    ):
        return False
    storage = recorded.tracked(value).storage
    if recorded.tracked(autograd_base).storage is not storage or is_graph_start(
        captured, autograd_base, storage
    ):
        return False
    has_company = any(output is not value for output in captured.outputs_in(storage))
    return bool(storage.inputs) or has_company


def is_graph_start(captured: Captured, start: Any, storage: StorageState) -> bool:
    """Return True if an autograd graph starts at the tensor that the outputs on this storage are views of.

    That is the tensor that the storage was created with.  If no output is a view of it (`torch.zeros` returns
    another object than it records), it is the first output.
    """
    if start is view_base(storage.base_tensor):
        return True
    if storage.inputs or storage.base_tensor.requires_grad:
        return False
    outputs = captured.outputs_in(storage)
    if any(view_base(output) is view_base(storage.base_tensor) for output in outputs):
        return False
    return next((output for output in outputs if _is_differentiable_base(captured, output)), None) is start


def _is_differentiable_base(captured: Captured, output: Any) -> bool:
    return captured.exit_of(output).requires_grad and captured.exit_of(output).view_base is None


def check_hooks_on_views(captured: Captured, alias_infos: Sequence[OutputAliasInfo], bases: Bases) -> None:
    """Check hooks on the operators' first arguments, if the wrapper regenerates an output that requires grad.

    Raises:
        UnsupportedError: such an output has a hook, or a view between it and its base does.
    """
    regenerated = [info for info in alias_infos if _is_made_by_wrapper(info) and info.tensor.requires_grad]
    if not regenerated:
        return
    firsts = (call.args[0] for call in captured.calls if call.args)
    hooked = {
        grad_fn_of(argument)
        for argument in firsts
        if type(argument) is FakeTensor and argument._backward_hooks
    } - {None}
    for info in regenerated:
        if info.tensor._backward_hooks or (hooked and _leads_through(info, bases, hooked)):
            raise unsupported("hook-on-view", captured.subject.span)


def _is_made_by_wrapper(info: OutputAliasInfo) -> bool:
    is_view = info.value is None and info.output_type is not OutputType.IS_INPUT
    is_new_leaf = info.is_leaf and info.value is not None
    return info.tensor is not None and (is_new_leaf or is_view)


def _leads_through(info: OutputAliasInfo, bases: Bases, hooked: set[Any]) -> bool:
    """Return True if one of the hooked autograd nodes is between an output and its base."""
    base = info.tensor if info.base is None else bases.tensor(info.base)
    base_grad_fn = grad_fn_of(base)
    path = autograd_path(grad_fn_of(info.tensor))
    return not hooked.isdisjoint(takewhile(lambda node: node is not base_grad_fn, path))
