"""Combinations of changes to one input that the compiled function cannot repeat, facet by facet.

Invariant: a check reads the diff and the recorded calls; none is about a single operator.
"""

from aotlens.analysis.input_diff import InputDiff, has_new_data
from aotlens.analysis.input_reads import is_used_between
from aotlens.capture.events import EventKind
from aotlens.capture.invalid_views import grad_fn_of
from aotlens.capture.records import AutogradChange
from aotlens.capture.storage import Write, repeated_dims, span_of_writes, view_base
from aotlens.errors import UnsupportedError
from aotlens.model.report import Span
from aotlens.unsupported import unsupported


def check_input(diff: InputDiff) -> None:
    """Check that the compiled function can repeat the changes of an input.

    Raises:
        UnsupportedError: it cannot.
    """
    if diff.input.wrapped is not None:
        _check_subclass(diff)
    if diff.swap is not None:
        _check_storage_swap(diff)
    _check_autograd(diff)
    _check_storage_resize(diff)
    _check_recorded_write(diff)
    mutations = diff.own_mutations if diff.mutations and diff.requires_grad else ()
    if mutations and diff.swap is None and diff.input.wrapped is None:
        _check_geometry(diff, mutations)


def _error(case: str, diff: InputDiff, span: Span | None, **values: str) -> UnsupportedError:
    return unsupported(case, span or diff.captured.subject.span, input=diff.input.slot.name, **values)


def _check_subclass(diff: InputDiff) -> None:
    span = span_of_writes(diff.mutations)
    if diff.geometry is not None:
        kind = type(diff.argument).__name__
        raise _error("metadata-mutation-of-subclass", diff, span, type=kind)
    if diff.autograd in (AutogradChange.REQUIRES_GRAD, AutogradChange.DETACHED):
        raise _error("requires-grad-of-subclass", diff, span)


def _check_storage_swap(diff: InputDiff) -> None:
    span = span_of_writes(diff.mutations)
    if diff.input.is_view and diff.requires_grad and diff.input.version_bumps:
        # eager regenerates the view's `grad_fn` with the geometry that it has on the new storage
        raise _error("storage-swap-of-mutated-view", diff, span)
    if diff.seen_by_autograd and diff.input.base is None and has_new_data(diff.input):
        # `diff.value` is the data of the new storage, so nothing carries the new data of the former one
        raise _error("storage-swap-and-recorded-write", diff, span)


def _check_autograd(diff: InputDiff) -> None:
    if diff.autograd not in (AutogradChange.NEW_LEAF, AutogradChange.DETACHED):
        return
    recorded, argument = diff.captured.recorded, diff.argument
    view, detached = next(diff.views, None), recorded.events.last(EventKind.DETACH, argument)
    span = detached.span if detached is not None else None
    if diff.autograd is AutogradChange.NEW_LEAF:
        # autograd takes the former tensor in what it recorded before, and the leaf in what came after
        last = detached.call if detached is not None else 0
        if view is not None or is_used_between(diff.captured, argument, last=last):
            raise _error("requires-grad-after-detach", diff, span)
        return
    if diff.input.is_leaf and diff.requires_grad and grad_fn_of(argument) is not None:
        raise _error("leaf-without-grad-then-written", diff, span_of_writes(diff.storage.writes))
    if view is not None and (diff.swap is not None or diff.storage.version or diff.mutations):
        # eager keeps the view's `grad_fn`, which no later call can repeat
        raise _error("detached-input-with-view", diff, span, view=view.slot.name)


def _check_storage_resize(diff: InputDiff) -> None:
    if diff.storage.new_bytes is None or diff.swap is not None:
        return
    span = span_of_writes(diff.mutations)
    if diff.geometry is not None and diff.storage.new_bytes == 0:
        raise _error("geometry-change-of-empty-storage", diff, span)
    if diff.storage.bytes_before == 0 and _has_flat_base(diff):
        raise _error("storage-resize-of-overlapping-input", diff, span)


def _check_recorded_write(diff: InputDiff) -> None:
    if diff.base is not None and diff.is_written and _has_gradient_apart_from_base(diff):
        # autograd does not know the overlapping inputs as views of one tensor
        raise _error("recorded-write-to-overlapping-input", diff, None)
    is_recorded = diff.seen_by_autograd and diff.value is not None and diff.base is None
    if is_recorded and diff.swap is None and repeated_dims(diff.input.fake):
        raise _error("recorded-write-to-expanded-input", diff, span_of_writes(diff.storage.writes))


def _has_gradient_apart_from_base(diff: InputDiff) -> bool:
    """Return True if an overlapping input ends with a gradient that a write to its base does not give it.

    The wrapper writes to the base alone.  The caller's tensor then requires grad only as autograd's view of a
    base that did not require grad before.
    """
    if diff.input.has_own_edge:
        return view_base(diff.argument).grad_fn is not diff.input.grad_fn
    if diff.input.requires_grad or not diff.requires_grad:
        return False
    base = diff.written
    return _has_flat_base(diff) or base.requires_grad or not base.has_new_grad_fn


def _has_flat_base(diff: InputDiff) -> bool:
    bases, inputs = diff.captured.bases, diff.captured.inputs
    return any(base.kind == "flat" and inputs[base.index].storage is diff.storage for base in bases)


def _check_geometry(diff: InputDiff, mutations: tuple[Write, ...]) -> None:
    """Check changes of geometry that autograd could notice, also those that cancel out.

    Autograd regenerates the `grad_fn` of a view when it is next asked for after a write to its base, and uses
    the geometry of both at that moment.  One change at the end can repeat only what has the same effect.
    """
    span = span_of_writes(mutations)
    modes = {move.grad_enabled for move in mutations}
    if len(modes) == 2:
        raise _error("geometry-changes-in-two-grad-modes", diff, span)
    if True in modes:  # then autograd records each change, in order with the writes
        return
    later_writes = diff.storage.writes[mutations[0].version :]
    # autograd also records a write with grad mode off if a custom function makes it and calls `mark_dirty`
    if any(write.grad_enabled for write in later_writes) or (later_writes and diff.input.has_new_grad_fn):
        raise _error("geometry-change-before-write", diff, span)
    if diff.geometry is not None and (reason := _use_of_other_geometry(diff, mutations)):
        raise _error("geometry-change-after-read", diff, span, reason=reason)


def _use_of_other_geometry(diff: InputDiff, mutations: tuple[Write, ...]) -> str:
    """Return which use of the input, before or after its geometry changes, the compiled call would miss."""
    captured, argument, calls = diff.captured, diff.argument, diff.captured.calls
    origins = {id(move.origin) for move in mutations}
    change = next((index for index, call in enumerate(calls) if id(call.origin) in origins), len(calls))
    other_sizes = diff.input.is_leaf and diff.input.at_exit.geometry.size != tuple(diff.input.fake.shape)
    if other_sizes and is_used_between(captured, argument, last=change):
        return "it is a leaf and is read before that: its gradient has its former sizes"
    if diff.input.is_view and is_used_between(captured, argument, first=change):
        return "it is a view, and is read after that"
    for other in captured.inputs if diff.storage.overlapping_inputs else ():
        is_view = (
            other.exit is not None and other.exit.view_base is argument and other.storage is diff.storage
        )
        if is_view and is_used_between(captured, other.argument, last=change):
            return f"its view `{other.slot.name}` is read before that"
    return ""
