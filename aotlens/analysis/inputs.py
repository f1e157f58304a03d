"""Analysis of each input: how its state differs, and where the compiled function makes that difference.

Invariant: where a mutation happens depends on the diff alone, which `_placement` lists case by case.
"""

from aotlens.analysis.input_checks import check_input
from aotlens.analysis.input_diff import InputDiff, diff_input, geometry_after
from aotlens.analysis.input_reads import is_read
from aotlens.analysis.records import InputAliasInfo, MutationType, StorageSwap
from aotlens.capture.builder import Builder
from aotlens.capture.records import AutogradChange, Captured


def analyse_inputs(
    captured: Captured, builder: Builder, keep_mutations: bool, storage_swaps: dict[int, StorageSwap]
) -> tuple[InputAliasInfo, ...]:
    """Return one record per flat input, then one per synthetic base.

    Raises:
        UnsupportedError: a combination of changes that the compiled function cannot repeat.
    """
    alias_infos = []
    for index, captured_input in enumerate(captured.inputs):
        if captured_input.storage is None or captured_input.duplicate_of is not None:
            alias_infos.append(InputAliasInfo(index, MutationType.NOT_MUTATED, "not written to"))
            continue
        diff = diff_input(captured, builder, index, storage_swaps.get(index))
        check_input(diff)
        alias_infos.append(_alias_info(index, diff, keep_mutations))
    return tuple(alias_infos)


def _alias_info(index: int, diff: InputDiff, keep_mutations: bool) -> InputAliasInfo:
    mutation_type, reason = _placement(diff, keep_mutations)
    mutates_data, writes_itself = diff.value is not None, diff.base is None and diff.swap is None
    moves_memory = diff.geometry is not None or diff.swap is not None or diff.storage.new_bytes is not None
    return InputAliasInfo(
        index=index,
        mutation_type=mutation_type,
        reason=_reason(index, diff, reason),
        hidden_from_autograd=mutates_data and writes_itself and diff.version_bumps == 0,
        under_no_grad=mutates_data and {write.grad_enabled for write in diff.writes} == {False},
        version_bumps=diff.version_bumps,
        new_geometry=diff.geometry,
        is_view=diff.is_written and _is_view_with_grad_fn(diff),
        metadata_mutated_without_grad=diff.geometry is not None
        and not any(move.grad_enabled for move in diff.own_mutations),
        seen_by_autograd=mutates_data and diff.seen_by_autograd,
        value=diff.value,
        writes=(
            *(diff.writes if diff.is_written or diff.swap is not None else ()),
            *(diff.mutations if moves_memory else ()),
        ),
        base=diff.base if diff.is_written else None,
        storage_swap=diff.swap,
        autograd=diff.autograd,
        is_resized=diff.is_written and diff.storage.is_enlarged and diff.swap is None,
        storage_bytes=diff.storage.new_bytes if diff.base is None else None,
        is_reshaped_leaf=_is_reshaped_leaf(diff),
    )


def _placement(diff: InputDiff, keep_mutations: bool) -> tuple[MutationType, str]:
    """Return where the mutation happens, and why, in the user's words."""
    by_wrapper, in_graph = MutationType.MUTATED_OUT_GRAPH, MutationType.MUTATED_IN_GRAPH
    if diff.swap is not None:
        writes_former = diff.value is not None and not diff.seen_by_autograd
        mutation_type = in_graph if writes_former and keep_mutations else by_wrapper
        return mutation_type, "its storage is swapped, which only the wrapper can do"
    if not diff.is_written:
        if diff.storage.new_bytes is not None:
            return in_graph, "its storage is resized, which the graph does"
        if diff.autograd is not AutogradChange.NONE:
            return by_wrapper, f"{diff.autograd.value}, which only the wrapper can reproduce"
        return MutationType.NOT_MUTATED, "not written to"
    if geometry_after(diff.written) is not None:
        what = "data and sizes or strides" if diff.value is not None else "sizes or strides"
        return by_wrapper, f"{what} change, which only the wrapper can reproduce"
    if diff.seen_by_autograd:
        return by_wrapper, "autograd must record the new value, so the wrapper copies it back"
    if not keep_mutations:
        return by_wrapper, "in-graph mutations are disabled"
    return in_graph, "autograd need not record the mutation, so the graph does it"


def _reason(index: int, diff: InputDiff, reason: str) -> str:
    """Return why an input is mutated where it is, together with others if they have a synthetic base."""
    for base in diff.captured.bases if diff.swap is None and diff.is_written else ():
        if index in base.members:
            inputs = (diff.captured.inputs[member] for member in base.members if member != index)
            others = ", ".join(f"`{other.slot.name}`" for other in inputs)
            reason = f"overlaps {others}: the graph writes to their synthetic base"
            break
    is_named = diff.autograd is AutogradChange.NONE or reason.startswith(diff.autograd.value)
    return reason if is_named else f"{reason}; {diff.autograd.value}"


def _is_reshaped_leaf(diff: InputDiff) -> bool:
    """Return True if it is a leaf whose sizes differ, so that its gradient has other sizes after the call."""
    has_gradient = diff.input.gradient_leaf is diff.argument
    moves = diff.geometry is not None or diff.swap is not None
    return moves and has_gradient and diff.input.at_exit.geometry.size != tuple(diff.input.fake.shape)


def _is_view_with_grad_fn(diff: InputDiff) -> bool:
    """Return True if it matters when autograd looks up the input's `grad_fn`."""
    if diff.input.at_exit.view_base is None or not diff.requires_grad:
        return False
    return diff.geometry is None or is_read(diff.captured, diff.argument)
