"""Analysis of each input: mutations, storage swaps and changes in autograd.

Invariant: eager's own bookkeeping on the fake tensors (`grad_fn`, version counter, sizes) is the evidence; no
rule is about a single operator.
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
from aotlens.analysis.tensor_state import (
    geometry_after,
    grad_fn_of,
    has_new_data,
    has_new_grad_fn,
    span_of_writes,
    version_bumps,
)
from aotlens.capture.builder import Builder
from aotlens.capture.inputs.synthetic_bases import has_other_grad_fn
from aotlens.capture.recorded import StorageState
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import repeated_dims
from aotlens.unsupported import unsupported

aten = torch.ops.aten


def analyse_inputs(
    captured: Captured, builder: Builder, keep_mutations: bool, storage_swaps: StorageSwaps
) -> tuple[InputAliasInfo, ...]:
    """Return one record per flat input.

    Raises:
        UnsupportedError: the input's storage is swapped, and both storages are written to.
    """
    alias_infos = []
    for index, captured_input in enumerate(captured.inputs):
        if (
            not captured_input.is_tensor
            or captured_input.duplicate_of is not None
            or captured_input.storage is None
        ):
            alias_infos.append(InputAliasInfo(index, MutationType.NOT_MUTATED, "not written to"))
        elif captured_input.wrapped is not None:
            alias_infos.append(
                analyse_wrapper(captured, builder, index, captured_input.wrapped, keep_mutations)
            )
        elif index in storage_swaps.by_input:
            alias_infos.append(
                _analyse_storage_swap(captured, builder, index, storage_swaps.by_input[index], keep_mutations)
            )
        else:
            alias_infos.append(_analyse_tensor(captured, index, keep_mutations))
    return tuple(alias_infos)


def _analyse_tensor(captured: Captured, index: int, keep_mutations: bool) -> InputAliasInfo:
    captured_input = captured.inputs[index]
    storage: Any = captured_input.storage
    mutates_data = has_new_data(captured_input)
    new_geometry = geometry_after(captured_input)
    if new_geometry is None and storage.metadata_mutations and captured_input.argument.requires_grad:
        # rejects changes that cancel out but that autograd notices
        _metadata_mutated_without_grad(captured, captured_input)
    autograd = _autograd_change(captured, captured_input)
    if autograd is AutogradChange.DETACHED and (storage.version or storage.metadata_mutations):
        _check_views_of_detached(captured, captured_input)
    bumps = _version_group_bumps(captured, index)
    if storage.new_bytes is not None:
        _check_storage_resize(captured, captured_input, new_geometry)
        if not mutates_data:
            return _storage_resize_only(index, storage, bumps)
    if not mutates_data and new_geometry is None:
        kind, reason = MutationType.NOT_MUTATED, "not written to"
        if autograd is not AutogradChange.NONE:
            kind, reason = (
                MutationType.MUTATED_OUT_GRAPH,
                (f"{autograd.value}, which only the wrapper can reproduce"),
            )
        return InputAliasInfo(index, kind, reason, version_bumps=bumps, autograd=autograd)
    written = captured_input if captured_input.base is None else captured.inputs[captured_input.base]
    seen_by_autograd = has_new_grad_fn(written)
    if captured_input.base is not None:
        _check_grad_fn_kept(captured, captured_input, written)
    if (
        seen_by_autograd
        and mutates_data
        and captured_input.base is None
        and repeated_dims(captured_input.fake)
    ):
        raise unsupported(
            "recorded-write-to-expanded-input", span_of_writes(storage.writes), input=captured_input.slot.name
        )
    mutation_type, reason = mutation_placement(
        mutates_data, geometry_after(written), seen_by_autograd, keep_mutations
    )
    return InputAliasInfo(
        index=index,
        mutation_type=mutation_type,
        reason=_with_autograd_change(_synthetic_base_reason(captured, index) or reason, autograd),
        base=captured_input.base,
        mutates_data=mutates_data,
        hidden_from_autograd=mutates_data and captured_input.base is None and bumps == 0,
        under_no_grad=mutates_data and all(not write.grad_enabled for write in storage.writes),
        version_bumps=bumps,
        new_geometry=new_geometry,
        is_view=_is_view_with_grad_fn(captured, captured_input, new_geometry),
        metadata_mutated_without_grad=new_geometry is not None
        and _metadata_mutated_without_grad(captured, captured_input),
        seen_by_autograd=seen_by_autograd and mutates_data,
        value=storage.base if mutates_data else None,
        writes=(*storage.writes, *(storage.metadata_mutations if new_geometry is not None else ())),
        autograd=autograd,
        is_resized=storage.is_enlarged,
        storage_bytes=storage.new_bytes if captured_input.base is None else None,
    )


def _check_views_of_detached(captured: Captured, captured_input: CapturedInput) -> None:
    """Check that no other input is a view of an input that is detached in place.

    Raises:
        UnsupportedError: eager keeps the `grad_fn` of such a view, which no later call can repeat.
    """
    views = (
        view for view in captured.inputs if view.is_tensor and view.argument._base is captured_input.argument
    )
    for view in views:
        if view.requires_grad:
            raise unsupported(
                "detached-input-with-view",
                captured.recorded.span_of_detaching(captured_input.argument) or captured.subject.span,
                input=captured_input.slot.name,
                view=view.slot.name,
            )


def _is_view_with_grad_fn(
    captured: Captured, captured_input: CapturedInput, new_geometry: Geometry | None
) -> bool:
    """Return True if it matters when autograd looks up the input's `grad_fn`."""
    if captured_input.argument._base is None or not captured_input.argument.requires_grad:
        return False
    return new_geometry is None or is_input_read(captured, captured_input)


def _check_storage_resize(captured: Captured, captured_input: CapturedInput, new_geometry: Any) -> None:
    storage: Any = captured_input.storage
    if new_geometry is not None and storage.new_bytes == 0:
        raise unsupported(
            "geometry-change-of-empty-storage",
            span_of_writes(storage.metadata_mutations),
            input=captured_input.slot.name,
        )
    flat = any(
        synthetic_base.kind == "flat" and captured.inputs[synthetic_base.index].storage is storage
        for synthetic_base in captured.bases
    )
    if flat and storage.bytes_before == 0:
        raise unsupported(
            "storage-resize-of-overlapping-input",
            span_of_writes(storage.metadata_mutations),
            input=captured_input.slot.name,
        )


def _storage_resize_only(index: int, storage: StorageState, bumps: int) -> InputAliasInfo:
    """Describe an input of which only the storage is resized."""
    return InputAliasInfo(
        index,
        MutationType.MUTATED_IN_GRAPH,
        "its storage is resized, which the graph does",
        version_bumps=bumps,
        storage_bytes=storage.new_bytes,
        writes=storage.metadata_mutations,
    )


def _with_autograd_change(reason: str, autograd: AutogradChange) -> str:
    return reason if autograd is AutogradChange.NONE else f"{reason}; {autograd.value}"


def _metadata_mutated_without_grad(captured: Captured, captured_input: CapturedInput) -> bool:
    """Return True if all metadata mutations of the tensor ran with grad mode off.

    Raises:
        UnsupportedError: only some did; one change at the end cannot repeat that.
    """
    storage: Any = captured_input.storage
    chain = captured.recorded.tracked(captured_input.argument).chain
    mutations = [move for move in storage.metadata_mutations if move.chain == chain[: len(move.chain)]]
    seen_mutations = [move for move in mutations if move.grad_enabled]
    if seen_mutations and len(seen_mutations) < len(mutations) and captured_input.argument.requires_grad:
        raise unsupported(
            "geometry-changes-in-two-grad-modes", span_of_writes(mutations), input=captured_input.slot.name
        )
    later_writes = storage.writes[mutations[0].version :] if mutations else []
    marked_dirty = later_writes and has_new_grad_fn(captured_input)
    autograd_sees_write = any(write.grad_enabled for write in later_writes) or marked_dirty
    if not seen_mutations and captured_input.argument.requires_grad and autograd_sees_write:
        raise unsupported(
            "geometry-change-before-write", span_of_writes(mutations), input=captured_input.slot.name
        )
    if mutations and not seen_mutations and geometry_after(captured_input) is not None:
        check_views_with_grad_fn(captured, captured_input, mutations)
    return not seen_mutations


def _check_grad_fn_kept(captured: Captured, captured_input: CapturedInput, base: CapturedInput) -> None:
    """Check that a write with a gradient reaches every input that shares the storage.

    Raises:
        UnsupportedError: autograd does not know the overlapping inputs as views of one tensor.
    """
    flat = any(
        synthetic_base.kind == "flat" and captured.inputs[synthetic_base.index] is base
        for synthetic_base in captured.bases
    )
    starts = captured_input.argument.requires_grad and not captured_input.requires_grad
    lost = starts and (flat or base.requires_grad or not has_new_grad_fn(base))
    if lost or (captured_input.has_own_edge and has_other_grad_fn(captured_input.argument)):
        raise unsupported(
            "recorded-write-to-overlapping-input", captured.subject.span, input=captured_input.slot.name
        )


def _version_group_bumps(captured: Captured, index: int) -> int:
    """Return by how much the wrapper raises the input's version counter; overlapping inputs share one."""
    captured_input = captured.inputs[index]
    bumps, joined = (
        version_bumps(captured_input),
        captured_input.storage is not None and captured_input.storage.overlapping_inputs,
    )
    return _writes_through_input(captured, index) if bumps and joined else bumps


def _writes_through_input(captured: Captured, index: int) -> int:
    """Count the writes through an overlapping input, or a view of it, that went through no nearer input.

    A view whose storage is swapped still counts for its base: the first input takes such writes.
    """
    storage = captured.inputs[index].storage
    assert storage is not None  # since it is written to
    on_it = [
        input_index
        for input_index, captured_input in enumerate(captured.inputs)
        if captured_input.storage is storage
    ]
    chains = {input_index: captured.inputs[input_index].initial_chain for input_index in on_it}
    nearest = list[int]()
    for write in (*storage.writes, *(move for move in storage.metadata_mutations if move.is_counted)):
        through = [
            input_index
            for input_index in on_it
            if write.chain[: len(chains[input_index])] == chains[input_index]
        ]
        nearest += [max(through, key=lambda input_index: len(chains[input_index]))] if through else []
    elsewhere = version_bumps(captured.inputs[index]) - len(nearest)
    return nearest.count(index) + (elsewhere if index == on_it[0] and elsewhere > 0 else 0)


def _synthetic_base_reason(captured: Captured, index: int) -> str:
    """Return why an input is mutated together with others; empty if it has no synthetic base."""
    for base in captured.bases:
        if index in base.members:
            others = ", ".join(
                f"`{captured.inputs[member].slot.name}`" for member in base.members if member != index
            )
            return f"overlaps {others}: the graph writes to their synthetic base"
    return ""


def _analyse_storage_swap(
    captured: Captured, builder: Builder, index: int, storage_swap: StorageSwap, keep_mutations: bool
) -> InputAliasInfo:
    """Describe an input whose storage is swapped; either storage may be written to as well."""
    captured_input = captured.inputs[index]
    storage: Any = captured_input.storage
    check_reads_before_resize(captured, captured_input)
    seen_by_autograd = has_new_grad_fn(captured_input)
    writes_old_storage = captured_input.base is None and has_new_data(captured_input)
    if captured_input.is_view and captured_input.argument.requires_grad and version_bumps(captured_input):
        raise unsupported(
            "storage-swap-of-mutated-view",
            span_of_writes(storage.metadata_mutations) or captured.subject.span,
            input=captured_input.slot.name,
        )
    if writes_old_storage and seen_by_autograd:
        raise unsupported(
            "storage-swap-and-recorded-write",
            span_of_writes(storage.metadata_mutations) or captured.subject.span,
            input=captured_input.slot.name,
        )
    value = storage.base if writes_old_storage else None
    if seen_by_autograd:  # a value of its own: the new storage is returned separately, detached
        value = builder.emit(aten.clone.default, builder.node_of(captured_input.argument))
    in_graph, autograd = writes_old_storage and keep_mutations, _autograd_change(captured, captured_input)
    if autograd is AutogradChange.DETACHED:
        _check_views_of_detached(captured, captured_input)
    return InputAliasInfo(
        index=index,
        mutation_type=MutationType.MUTATED_IN_GRAPH if in_graph else MutationType.MUTATED_OUT_GRAPH,
        reason=_with_autograd_change("its storage is swapped, which only the wrapper can do", autograd),
        mutates_data=writes_old_storage or seen_by_autograd,
        under_no_grad=writes_old_storage and all(not write.grad_enabled for write in storage.writes),
        version_bumps=_version_group_bumps(captured, index),
        seen_by_autograd=seen_by_autograd,
        value=value,
        writes=(*storage.writes, *storage.metadata_mutations),
        storage_swap=storage_swap,
        storage_bytes=storage.new_bytes,
        autograd=autograd,
    )


def _autograd_change(captured: Captured, captured_input: CapturedInput) -> AutogradChange:
    base = captured_input.argument._base
    as_its_base = base is not None and base.requires_grad  # then every view requires grad by itself
    if (
        captured_input.argument.requires_grad
        and not captured_input.requires_grad
        and captured_input.argument.is_leaf
    ):
        return AutogradChange.NONE if as_its_base else AutogradChange.REQUIRES_GRAD
    if captured_input.requires_grad and not captured_input.argument.requires_grad:
        return AutogradChange.DETACHED
    detached = captured_input.requires_grad and captured.recorded.was_detached(captured_input.argument)
    if detached and grad_fn_of(captured_input.argument) is not None:  # by a later write
        if not captured_input.is_leaf:
            return AutogradChange.DETACHED
        raise unsupported(
            "leaf-without-grad-then-written",
            span_of_writes(captured.recorded.tracked(captured_input.argument).storage.writes),
            input=captured_input.slot.name,
        )
    if captured_input.becomes_leaf:
        _check_uses_before_new_leaf(captured, captured_input)
        return AutogradChange.NEW_LEAF
    return AutogradChange.NONE


def _check_uses_before_new_leaf(captured: Captured, captured_input: CapturedInput) -> None:
    """Check uses of an input that is made a leaf in place: autograd takes the former tensor or the leaf.

    Raises:
        UnsupportedError: it is used before that, or another input is a view of it.
    """
    views = (
        view for view in captured.inputs if view.is_tensor and view.argument._base is captured_input.argument
    )
    if is_used_before_detach(captured, captured_input.argument) or any(view.requires_grad for view in views):
        raise unsupported(
            "requires-grad-after-detach",
            captured.recorded.span_of_detaching(captured_input.argument),
            input=captured_input.slot.name,
        )
