"""Analysis of each output: what it aliases, and how the wrapper regenerates the alias.

Invariant: two outputs share a storage in the compiled function exactly when they do in eager.
"""

from collections.abc import Container
from dataclasses import replace
from typing import Any

import torch

from aotlens.analysis.bases import Bases, Start, alias_of, is_linked, relative_chain
from aotlens.analysis.function_views import (
    check_view_not_written,
    custom_function_view,
    is_custom_function_view,
    view_of_intermediate,
)
from aotlens.analysis.graph_outputs import (
    graph_output,
    graph_output_or_duplicate,
    intermediate_base,
    view_of_output,
)
from aotlens.analysis.leaves import created_leaf_base, view_of_created_leaf
from aotlens.analysis.output_checks import (
    check_hooks_on_views,
    check_not_detached,
    check_output_grad_fn,
    check_view_storage,
    is_graph_start,
)
from aotlens.analysis.records import (
    AliasBase,
    BaseInfo,
    ConstantBase,
    InputBase,
    IntermediateBaseOf,
    OutputAliasInfo,
    OutputBase,
    OutputType,
    StorageSwap,
)
from aotlens.analysis.storage_swaps import nearest_input, storage_swap_base
from aotlens.capture.autograd.graph_walk import autograd_path
from aotlens.capture.builder import Builder
from aotlens.capture.graph import PLAIN
from aotlens.capture.recorded import StorageState
from aotlens.capture.records import Captured, OutputExit
from aotlens.capture.subclasses import is_wrapper, value_of
from aotlens.capture.views import ViewStep, views_after
from aotlens.torch_api.dynamo.state import is_opaque_value
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.unsupported import unsupported

aten = torch.ops.aten


def analyse_outputs(
    captured: Captured, builder: Builder, storage_swaps: dict[int, StorageSwap], bases: Bases
) -> tuple[OutputAliasInfo, ...]:
    """Return one record per flat output; intermediates that several outputs are views of become bases."""
    owners = {
        id(captured_input.argument): input_index
        for input_index, captured_input in reversed(list(enumerate(captured.inputs)))
    }
    _check_outputs(captured, owners)
    groups = _groups_by_storage(captured)
    alias_infos: list[OutputAliasInfo] = []
    for index, value in enumerate(captured.outputs):
        if not isinstance(value, torch.Tensor):
            alias_infos.append(_plain_value(captured, builder, index, value))
            continue
        if type(value) is not FakeTensor and not is_wrapper(value):
            alias_infos.append(_captured_constant(builder, index, value))
            continue
        same = next((i for i in range(index) if captured.outputs[i] is value), None)
        storage = captured.recorded.tracked(value).storage
        if id(value) in owners:
            alias_infos.append(_returned_input(captured, index, owners[id(value)]))
        elif same is not None:
            alias_infos.append(_duplicate(captured, index, alias_infos[same]))
        elif (of_leaf := _view_of_leaf(captured, index, value)) is not None:
            alias_infos.append(of_leaf)
        elif (inside := _input_storage_inside(captured, value, storage)) is not None:
            alias_infos.append(_alias_inside_wrapper(captured, builder, index, inside))
        elif (owner := storage_swap_base(captured, storage_swaps, value)) is not None:
            alias_infos.append(_view_after_storage_swap(captured, builder, index, owner))
        elif storage.inputs:
            alias_infos.append(_alias_of_input(captured, builder, index, storage_swaps))
        else:
            alias_infos.append(_intermediate(captured, builder, index, groups[id(storage)], bases))
    check_hooks_on_views(captured, alias_infos, bases)
    return tuple(alias_infos)


def _check_outputs(captured: Captured, owners: Container[int]) -> None:
    """Raise UnsupportedError for an output that no wrapper can return; `owners` has the ids of the inputs."""
    for value in captured.outputs:
        if type(value) is FakeTensor or is_wrapper(value):
            is_frozen = isinstance(value, torch.nn.Parameter) and not value.requires_grad
            if is_frozen and id(value) not in owners:
                raise unsupported("frozen-parameter", captured.subject.span)
            check_view_storage(captured, value)
            storage = captured.recorded.tracked(value).storage
            if _input_storage_inside(captured, value, storage) is None:
                check_not_detached(captured, value)


def _view_of_leaf(captured: Captured, index: int, value: Any) -> OutputAliasInfo | None:
    leaf = created_leaf_base(captured, value)
    return None if leaf is None else view_of_created_leaf(captured, index, leaf)


def _groups_by_storage(captured: Captured) -> dict[int, list[int]]:
    """Return the distinct outputs on each intermediate storage."""
    groups: dict[int, list[int]] = {}
    for index, value in enumerate(captured.outputs):
        if isinstance(value, torch.Tensor) and all(captured.outputs[i] is not value for i in range(index)):
            leaf = created_leaf_base(captured, value)
            if leaf is not None and any(other is leaf for other in captured.outputs):
                continue
            groups.setdefault(id(captured.recorded.tracked(value).storage), []).append(index)
    return groups


def _plain_value(captured: Captured, builder: Builder, index: int, value: Any) -> OutputAliasInfo:
    """Describe an output that is no tensor: a number, a string, a symbolic size."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        value = builder.symbols.value(value)
    elif not _is_number_like(value):
        raise unsupported("output-type", captured.subject.span, type=type(value).__name__)
    return OutputAliasInfo(index, OutputType.NON_ALIAS, "not a tensor", value)


def _is_number_like(value: Any) -> bool:
    if isinstance(value, slice):
        ends = (value.start, value.stop, value.step)
        return all(end is None or isinstance(end, int) for end in ends)
    return type(value) in (*PLAIN, range) or is_opaque_value(value)


def _captured_constant(builder: Builder, index: int, value: Any) -> OutputAliasInfo:
    """Describe an output that is a real tensor of the user's."""
    node = builder.node_of(value)
    reason = "a captured tensor, returned unchanged"
    return OutputAliasInfo(index, OutputType.IS_INPUT, reason, None, base=ConstantBase(node), tensor=value)


def _input_storage_inside(captured: Captured, value: Any, storage: StorageState) -> StorageState | None:
    """Return the input storage that an output shares other than as a view: inside or around a subclass."""
    if storage.inputs:
        return None if captured.inputs_on(storage) else storage
    inner = captured.recorded.inner_storages(value) if is_wrapper(value) else ()
    return next(
        (inner_storage for inner_storage in inner if inner_storage.inputs and _can_be_written(inner_storage)),
        None,
    )


def _can_be_written(storage: StorageState) -> bool:
    """Return False for the indices inside a subclass, which all tensors computed from it share."""
    return not storage.wrapper_name or bool(storage.base.val.is_floating_point())


def _alias_inside_wrapper(
    captured: Captured, builder: Builder, index: int, storage: StorageState
) -> OutputAliasInfo:
    """Describe an output that shares an input's storage inside or around a subclass, not as a view."""
    input_index = storage.inputs[0]
    name = captured.inputs[input_index].slot.name
    if storage.version:
        raise unsupported(
            "output-shares-inner-tensor", storage.writes[-1].origin.location.innermost, tensor=name
        )
    graph_value = graph_output(captured, builder, index)
    reason = f"shares memory with `{name}` inside a wrapper, which autograd does not see"
    return replace(
        graph_value, output_type=OutputType.CUSTOM_FUNCTION_VIEW, reason=reason, base=InputBase(input_index)
    )


def _duplicate(captured: Captured, index: int, earlier: OutputAliasInfo) -> OutputAliasInfo:
    """Describe an output that is the same object as an earlier one; a view of an input, if that is one."""
    value, of_input = captured.outputs[index], isinstance(earlier.base, InputBase)
    return OutputAliasInfo(
        index=index,
        output_type=earlier.output_type if of_input else OutputType.ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT,
        reason=f"the same tensor as output {earlier.index}",
        value=None,
        base=earlier.base if of_input else OutputBase(earlier.index),
        same_object_as=earlier.index,
        requires_grad=captured.exit_of(value).requires_grad,
        tensor=value,
    )


def _returned_input(captured: Captured, index: int, input_index: int) -> OutputAliasInfo:
    value = captured.outputs[index]
    return OutputAliasInfo(
        index=index,
        output_type=OutputType.IS_INPUT,
        reason=f"`{captured.inputs[input_index].slot.name}` itself is returned",
        value=None,
        base=InputBase(input_index),
        requires_grad=captured.exit_of(value).requires_grad,
        tensor=value,
    )


def _alias_of_input(
    captured: Captured, builder: Builder, index: int, storage_swaps: dict[int, StorageSwap]
) -> OutputAliasInfo:
    """Describe an output on an input's storage, as a view that the wrapper regenerates from the input."""
    recorded, value = captured.recorded, captured.outputs[index]
    storage = recorded.tracked(value).storage
    input_index = nearest_input(captured, value, storage)
    captured_input = captured.inputs[input_index]
    check_output_grad_fn(captured, captured_input, value)
    at_exit = captured.exit_of(value)
    if at_exit.requires_grad and at_exit.grad_fn is None:
        check_view_not_written(captured, value, storage)
    if is_custom_function_view(captured, captured_input, value):
        return custom_function_view(captured, builder, index, value, input_index)
    is_swapped = input_index in storage_swaps
    before = recorded.is_view_of_detached(value) and at_exit.view_base is captured_input.argument
    chain: tuple[ViewStep, ...] | None
    if is_swapped:  # regenerated before the storage swap, from the former storage
        chain = views_after(captured_input.initial_chain, recorded.tracked(value).chain)
    else:
        chain = relative_chain(captured, captured_input.argument, value)
    leaf, linked = at_exit.is_created_leaf, is_linked(captured, value, captured_input.argument)
    if linked and chain == () and not captured_input.at_exit.requires_grad:
        chain = None  # another tensor over all of it, which autograd knows as a view: made by `set_`
    view = _view_of_input(captured, index, input_index, chain)
    would_gain_grad = before or (linked and captured_input.at_exit.requires_grad)
    without_grad = view.viewed_without_grad and not leaf if view.requires_grad else would_gain_grad
    return replace(
        view,
        detached_after=0 if chain == () else view.detached_after,
        viewed_without_grad=without_grad,
        viewed_before_change=is_swapped or before,
    )


def _view_of_input(
    captured: Captured, index: int, input_index: int, chain: tuple[ViewStep, ...] | None
) -> OutputAliasInfo:
    """Describe an output that the wrapper regenerates from an input, by a view chain or by its geometry."""
    captured_input = captured.inputs[input_index]
    return alias_of(
        captured,
        index,
        Start(InputBase(input_index), captured_input.argument, chain),
        OutputType.ALIAS_OF_INPUT,
        f"a view of `{captured_input.slot.name}`: regenerated from the caller's tensor on each call",
    )


def _view_after_storage_swap(
    captured: Captured, builder: Builder, index: int, input_index: int
) -> OutputAliasInfo:
    """Describe a view that was made after the storage swap."""
    value = captured.outputs[index]
    if is_custom_function_view(captured, captured.inputs[input_index], value):
        # raises, since the storage of the input is swapped
        return custom_function_view(captured, builder, index, value, input_index)
    chain = relative_chain(captured, captured.inputs[input_index].argument, value)
    return _view_of_input(captured, index, input_index, chain)


def _intermediate(
    captured: Captured, builder: Builder, index: int, group: list[int], bases: Bases
) -> OutputAliasInfo:
    """Describe an output on an intermediate's storage: the graph's value, or a view of the group's base."""
    value = captured.outputs[index]
    storage = captured.recorded.tracked(value).storage
    base = bases.of(storage)
    of_function = view_of_intermediate(captured, builder, index, group, base)
    if of_function is not None:
        return of_function
    alone = len(group) == 1 and not captured.exit_of(value).is_viewed_without_grad
    needs_no_base = alone or not any(_has_grad_fn(captured, i) for i in group)
    if needs_no_base and base is None:
        hidden_base = intermediate_base(captured, group) if index == group[0] else None
        if hidden_base is None:
            return view_of_output(captured, index, group) or graph_output_or_duplicate(
                captured, builder, index, group
            )
        base = bases.hide(
            BaseInfo(value_of(builder, hidden_base), hidden_base, without_gradient=True), storage
        )
    first = base is None
    if base is None:
        base = _choose_base(captured, builder, group, storage, bases)
    if isinstance(base, OutputBase):
        if base.index == index:
            return graph_output(captured, builder, index)
        output_type = OutputType.ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT
    elif first:
        output_type = OutputType.ALIAS_OF_INTERMEDIATE_SAVE_AS_OUTPUT
    else:
        output_type = OutputType.ALIAS_OF_INTERMEDIATE
    return _alias_of_base(captured, index, base, bases, output_type)


def _alias_of_base(
    captured: Captured, index: int, base: AliasBase, bases: Bases, output_type: OutputType
) -> OutputAliasInfo:
    """Describe an output that shares an intermediate's storage with other outputs."""
    value = captured.outputs[index]
    tracked, storage = captured.recorded.tracked(value), captured.recorded.tracked(value).storage
    base_tensor = bases.tensor(base)
    if base_tensor is None:
        base_tensor = storage.base_tensor
    chain = relative_chain(captured, base_tensor, value)
    if isinstance(base, IntermediateBaseOf) and bases.hidden[base.index].value is storage.base:
        chain = tracked.chain  # of a storage swap: from the storage's first tensor in its first geometry
    reason = "shares memory with another output, so it is regenerated from their common base"
    return alias_of(captured, index, Start(base, base_tensor, chain), output_type, reason)


def _has_grad_fn(captured: Captured, index: int) -> bool:
    """Return True if the output has a `grad_fn`, or only lacks one since its view ran with grad mode off."""
    at_exit = captured.exit_of(captured.outputs[index])
    return at_exit.has_grad_fn or at_exit.is_viewed_without_grad


def _choose_base(
    captured: Captured, builder: Builder, group: list[int], storage: StorageState, bases: Bases
) -> AliasBase:
    """Choose a group's base: a differentiable output that covers the storage, else a hidden output."""
    for index in group:
        value = captured.outputs[index]
        at_exit = captured.exit_of(value)
        has_grad_fn = at_exit.grad_fn is not None and not captured.recorded.tracked(value).chain
        if has_grad_fn and is_graph_start(captured, at_exit.start, storage):
            return bases.set(storage, OutputBase(index))
    if not storage.base_tensor.requires_grad:
        raise unsupported("custom-views-of-intermediate", captured.subject.span)
    cut_off = all(_is_cut_off(captured.exit_of(captured.outputs[index])) for index in group)
    info = BaseInfo(value_of(builder, storage.base_tensor), storage.base_tensor, cut_off)
    return bases.hide(info, storage)


def _is_cut_off(at_exit: OutputExit) -> bool:
    """Return True if a view between the output and its base ran with grad mode off.

    The autograd nodes of views form a chain.  After such a view it ends in an edge to nothing; otherwise it
    reaches a leaf, which has no next functions, or an operator of several tensors.
    """
    *_, last = autograd_path(at_exit.grad_fn)
    return last is None and not at_exit.raises_on_use
