"""What the function did to each input.

Invariant: eager's own bookkeeping on the fake tensors (tape, version counter, sizes) is the evidence; no
rule about single operators stands here.
"""

from typing import Any

import torch

from aotlens.analysis.input_reads import (
    check_reads_before_resize,
    check_views_with_grad_fn,
    is_input_read,
    is_used_before_detach,
)
from aotlens.analysis.records import (
    AutogradChange,
    Geometry,
    InputAliasInfo,
    MutationType,
    StorageSwap,
    mutation_placement,
)
from aotlens.analysis.storage_swaps import StorageSwaps
from aotlens.analysis.subclasses import analyse_wrapper
from aotlens.capture.autograd.detached_views import span_of_detaching, was_detached
from aotlens.capture.graph import TRACKED_ATTRIBUTE
from aotlens.capture.inputs.synthetic_bases import has_other_grad_fn
from aotlens.capture.invalid_views import invalid_view_error
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import Storage, Write, repeated_dims
from aotlens.errors import RejectedAssertionError, UnsupportedError
from aotlens.model.report import Span

aten = torch.ops.aten


def geometry_of(tensor: Any) -> Geometry:
    return Geometry(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


def analyse_inputs(
    captured: Captured, keep_mutations: bool, exchanges: StorageSwaps
) -> tuple[InputAliasInfo, ...]:
    """One record per flat input.

    Raises:
        UnsupportedError: the input got another storage, and both are written to.
    """
    found = []
    for index, given in enumerate(captured.inputs):
        if not given.is_tensor or given.duplicate_of is not None or given.storage is None:
            found.append(InputAliasInfo(index, MutationType.NOT_MUTATED, "not written to"))
        elif given.wrapped is not None:
            found.append(analyse_wrapper(captured, index, given, given.wrapped, keep_mutations))
        elif index in exchanges.by_input:
            found.append(_exchanged(captured, index, exchanges.by_input[index], keep_mutations))
        else:
            found.append(_analyse(captured, index, keep_mutations))
    return tuple(found)


def _analyse(captured: Captured, index: int, keep_mutations: bool) -> InputAliasInfo:
    given = captured.inputs[index]
    storage: Any = given.storage
    mutates_data = _writes_data(given)
    moved = _moved(given)
    if moved is None and storage.moves and given.argument.requires_grad:
        _moved_without_grad(captured, given)  # refuses changes that cancel out, but not for autograd
    autograd = _autograd_change(captured, given)
    if autograd is AutogradChange.DETACHED and (storage.version or storage.moves):
        _refuse_views_of_detached(captured, given)
    bumps = _bumps(captured, index)
    if storage.new_bytes is not None:
        _refuse_resized(captured, given, moved)
        if not mutates_data:
            return _resized(index, storage, bumps)
    if not mutates_data and moved is None:
        kind, reason = MutationType.NOT_MUTATED, "not written to"
        if autograd is not AutogradChange.NONE:
            kind, reason = MutationType.MUTATED_OUT_GRAPH, f"{autograd.value}, which only the wrapper can do"
        return InputAliasInfo(index, kind, reason, version_bumps=bumps, autograd=autograd)
    written = given if given.base is None else captured.inputs[given.base]
    seen = _is_seen(written)
    if given.base is not None:
        _refuse_lost_history(captured, given, written)
    if seen and mutates_data and given.base is None and repeated_dims(given.fake):
        raise UnsupportedError(
            f"a write that autograd sees to `{given.slot.name}`, which is expanded",
            span_of_writes(storage.writes),
            "clone it before writing, or write under `torch.no_grad()`",
        )
    mutation_type, reason = mutation_placement(mutates_data, _moved(written), seen, keep_mutations)
    return InputAliasInfo(
        index=index,
        mutation_type=mutation_type,
        reason=_with_change(_base_reason(captured, index) or reason, autograd),
        base=given.base,
        mutates_data=mutates_data,
        hidden_from_autograd=mutates_data and given.base is None and bumps == 0,
        under_no_grad=mutates_data and all(not write.grad_enabled for write in storage.writes),
        version_bumps=bumps,
        new_geometry=moved,
        is_view=_is_view_with_history(captured, given, moved),
        moved_without_grad=moved is not None and _moved_without_grad(captured, given),
        seen_by_autograd=seen and mutates_data,
        value=storage.base if mutates_data else None,
        writes=(*storage.writes, *(storage.moves if moved is not None else ())),
        autograd=autograd,
        grown=storage.grown,
        storage_bytes=storage.new_bytes if given.base is None else None,
    )


def _refuse_views_of_detached(captured: Captured, given: CapturedInput) -> None:
    """Eager's histories of views go on without the tensor under them, which no call repeats."""
    views = (one for one in captured.inputs if one.is_tensor and one.argument._base is given.argument)
    for one in views:
        if one.requires_grad:
            raise UnsupportedError(
                f"`{given.slot.name}` detached in place, and written to or moved, while `{one.slot.name}` is "
                "a view of it",
                span_of_detaching(captured.recorder, given.argument) or captured.subject.span,
                "use `detach`",
            )


def _is_view_with_history(captured: Captured, given: CapturedInput, moved: Geometry | None) -> bool:
    """Whether it matters when autograd looks for the input's place in the tape."""
    if given.argument._base is None or not given.argument.requires_grad:
        return False
    return moved is None or is_input_read(captured, given)


def _refuse_resized(captured: Captured, given: CapturedInput, moved: Any) -> None:
    storage: Any = given.storage
    if moved is not None and storage.new_bytes == 0:
        raise UnsupportedError(
            f"a storage without memory under `{given.slot.name}`, whose sizes or strides change",
            span_of_writes(storage.moves),
            "give the memory back after the call",
        )
    flat = any(one.kind == "flat" and captured.inputs[one.index].storage is storage for one in captured.bases)
    if flat and storage.bytes_before == 0:
        raise UnsupportedError(
            f"memory made for `{given.slot.name}`, which overlaps another input and is no view of one tensor "
            "with it",
            span_of_writes(storage.moves),
            "resize the storage before the call",
        )


def _resized(index: int, storage: Storage, bumps: int) -> InputAliasInfo:
    """An input of which only the memory is given back or made."""
    return InputAliasInfo(
        index,
        MutationType.MUTATED_IN_GRAPH,
        "its memory is given back or made, which the graph does",
        version_bumps=bumps,
        storage_bytes=storage.new_bytes,
        writes=tuple(storage.moves),
    )


def _with_change(reason: str, autograd: AutogradChange) -> str:
    return reason if autograd is AutogradChange.NONE else f"{reason}; {autograd.value}"


def _moved(given: CapturedInput) -> Geometry | None:
    """The metadata that the function leaves; None when it is as it was."""
    geometry = geometry_of(given.argument)
    return geometry if geometry != geometry_of(given.fake) else None


def _moved_without_grad(captured: Captured, given: CapturedInput) -> bool:
    """Whether autograd sees none of the changes of the tensor's own metadata.

    Raises:
        UnsupportedError: it sees some of them, which one change at the end cannot repeat.
    """
    storage: Any = given.storage
    chain = captured.recorder.tracked(given.argument).chain
    moves = [move for move in storage.moves if move.chain == chain[: len(move.chain)]]
    seen = [move for move in moves if move.grad_enabled]
    if seen and len(seen) < len(moves) and given.argument.requires_grad:
        raise UnsupportedError(
            f"changes of the sizes or strides of `{given.slot.name}`, some of them under `no_grad`",
            span_of_writes(moves),
            "make all of them in one grad mode",
        )
    after = storage.writes[moves[0].version :] if moves else []
    told = any(write.grad_enabled for write in after) or (after and _is_seen(given))  # `mark_dirty`
    if not seen and given.argument.requires_grad and told:
        raise UnsupportedError(
            f"a change of the sizes or strides of `{given.slot.name}` under `no_grad` before a write to it "
            "with grad mode on",
            span_of_writes(moves),
            "write first, or make both in one grad mode",
        )
    if moves and not seen and _moved(given) is not None:
        check_views_with_grad_fn(captured, given, moves)
    return not seen


def grad_fn_of(tensor: Any) -> Any:
    """The tensor's place in the tape; None for a view whose place autograd refuses to tell.

    A view made with grad mode off, or one of several, has none once its base is written with grad mode on:
    autograd then raises for who asks, and so it does on the compiled result.
    """
    try:
        return tensor.grad_fn
    except (RuntimeError, ValueError) as error:
        tracked = getattr(tensor, TRACKED_ATTRIBUTE, None)
        moves = tracked.storage.moves if tracked is not None else []
        if moves:  # autograd takes the view again, on a tensor that has other sizes by then
            raise invalid_view_error(span_of_writes(moves), None) from error
        return None


def raises_on_grad_fn(tensor: Any) -> bool:
    """Whether autograd raises when it is asked for the tensor's place in the tape."""
    try:
        tensor.grad_fn  # noqa: B018 - only whether it raises is asked
    except (RuntimeError, ValueError):
        return True
    return False


def _refuse_lost_history(captured: Captured, given: CapturedInput, base: CapturedInput) -> None:
    """A write with a gradient to a tensor that only shares memory with those that autograd knows."""
    flat = any(one.kind == "flat" and captured.inputs[one.index] is base for one in captured.bases)
    starts = given.argument.requires_grad and not given.requires_grad
    lost = starts and (flat or base.requires_grad or not _is_seen(base))
    if lost or (given.is_apart and has_other_grad_fn(given.argument)):
        raise UnsupportedError(
            f"a write with a gradient to `{given.slot.name}`, which overlaps another input and is no view of "
            "one tensor with it",
            captured.subject.span,
            "clone one of them before the call",
        )


def _bumps(captured: Captured, index: int) -> int:
    """By how much the wrapper raises the input's version counter; those that overlap share one."""
    given = captured.inputs[index]
    bumps, joined = _version_bumps(given), given.storage is not None and given.storage.joined
    return _writes_through(captured, index) if bumps and joined else bumps


def _writes_through(captured: Captured, index: int) -> int:
    """How many writes went through an overlapping input, or a view of it, and not through a nearer one.

    A view that was given other memory goes on to count for its base: the first input takes such writes.
    """
    storage = captured.inputs[index].storage
    assert storage is not None  # it was written
    on_it = [at for at, given in enumerate(captured.inputs) if given.storage is storage]
    chains = {at: captured.inputs[at].came_as for at in on_it}
    nearest = list[int]()
    for write in (*storage.writes, *(move for move in storage.moves if move.is_counted)):
        through = [at for at in on_it if write.chain[: len(chains[at])] == chains[at]]
        nearest += [max(through, key=lambda at: len(chains[at]))] if through else []
    elsewhere = _version_bumps(captured.inputs[index]) - len(nearest)
    return nearest.count(index) + (elsewhere if index == on_it[0] and elsewhere > 0 else 0)


def _base_reason(captured: Captured, index: int) -> str:
    """Why an input changes with others; empty when it has no synthetic base."""
    for base in captured.bases:
        if index in base.members:
            others = ", ".join(f"`{captured.inputs[at].slot.name}`" for at in base.members if at != index)
            return f"overlaps {others}: the graph writes to the synthetic base of them"
    return ""


def _exchanged(captured: Captured, index: int, exchange: StorageSwap, keep_mutations: bool) -> InputAliasInfo:
    """An input on another storage: its own may have been written to before, or it itself since."""
    given = captured.inputs[index]
    storage: Any = given.storage
    check_reads_before_resize(captured, given)
    old, seen = given.base is None and _writes_data(given), _is_seen(given)  # else the base is written to
    if given.is_view and given.argument.requires_grad and _version_bumps(given):
        raise UnsupportedError(
            f"a storage mutation (`set_`, `.data`) of `{given.slot.name}`, a view with a gradient that is "
            "changed in place too",
            span_of_writes(storage.moves) or captured.subject.span,
            "return the new tensor instead",
        )
    if old and seen:
        raise RejectedAssertionError(
            f"a storage mutation (`set_`) of `{given.slot.name}`, but the input has other mutations that we "
            "cannot do in the graph: autograd sees a write to it",
            span_of_writes(storage.moves) or captured.subject.span,
            "write under `torch.no_grad()`, or give the new tensor back",
        )
    value = storage.base if old else None
    if seen:  # a value of its own: the new storage is handed out beside it, without history
        value = captured.recorder.emit(aten.clone.default, captured.recorder.node_of(given.argument))
    in_graph, autograd = old and keep_mutations, _autograd_change(captured, given)
    if autograd is AutogradChange.DETACHED:
        _refuse_views_of_detached(captured, given)
    return InputAliasInfo(
        index=index,
        mutation_type=MutationType.MUTATED_IN_GRAPH if in_graph else MutationType.MUTATED_OUT_GRAPH,
        reason=_with_change("it is given another storage, which only the wrapper can do", autograd),
        mutates_data=old or seen,
        under_no_grad=old and all(not write.grad_enabled for write in storage.writes),
        version_bumps=_bumps(captured, index),
        seen_by_autograd=seen,
        value=value,
        writes=(*storage.writes, *storage.moves),
        exchange=exchange,
        storage_bytes=storage.new_bytes,
        autograd=autograd,
    )


def span_of_writes(writes: list[Write]) -> Span | None:
    """The user's expression that wrote last."""
    return writes[-1].origin.place.innermost if writes else None


def _writes_data(given: CapturedInput) -> bool:
    """Whether the storage that the input came with has another value."""
    storage: Any = given.storage
    return storage.version > 0 and storage.base is not given.node and storage.bytes_after != 0


def _is_seen(given: CapturedInput) -> bool:
    changed = given.argument.requires_grad and grad_fn_of(given.argument) is not given.grad_fn
    return changed and not given.is_made_leaf


def _version_bumps(given: CapturedInput) -> int:
    return 0 if given.argument.is_inference() else given.argument._version - given.version


def _autograd_change(captured: Captured, given: CapturedInput) -> AutogradChange:
    base = given.argument._base
    as_its_base = base is not None and base.requires_grad  # every view of it does, without a call of its own
    if given.argument.requires_grad and not given.requires_grad and given.argument.is_leaf:
        return AutogradChange.NONE if as_its_base else AutogradChange.REQUIRES_GRAD
    if given.requires_grad and not given.argument.requires_grad:
        return AutogradChange.DETACHED
    detached = given.requires_grad and was_detached(captured.recorder, given.argument)
    if detached and grad_fn_of(given.argument) is not None:  # by a write after that
        if not given.is_leaf:
            return AutogradChange.DETACHED
        raise UnsupportedError(
            f"the leaf `{given.slot.name}`, made to require no grad and then written to with a gradient",
            span_of_writes(captured.recorder.tracked(given.argument).storage.writes),
            "give back a new tensor",
        )
    if given.is_made_leaf:
        _refuse_uses_before(captured, given)
        return AutogradChange.NEW_LEAF
    return AutogradChange.NONE


def _refuse_uses_before(captured: Captured, given: CapturedInput) -> None:
    """Of an input that is made a leaf in place: autograd is given either the former tensor or the leaf."""
    views = (one for one in captured.inputs if one.is_tensor and one.argument._base is given.argument)
    if is_used_before_detach(captured, given.argument) or any(one.requires_grad for one in views):
        raise UnsupportedError(
            f"`requires_grad_` on `{given.slot.name}`, which the function took off its history before, and "
            "used before that, or of which another input is a view",
            span_of_detaching(captured.recorder, given.argument),
            "give back a new leaf (`x.detach().requires_grad_()`)",
        )
