"""Results that are handed out as the graph computed them.

Invariant: such a result has eager's strides, and shares memory with other results where it does in eager.
"""

from collections.abc import Sequence
from typing import Any

from aotlens.analysis.inputs import grad_fn_of
from aotlens.analysis.leaves import geometry_on_base, is_created_leaf, relative_chain, views_before_detach
from aotlens.analysis.records import IntermediateBaseOf, OutputAliasInfo, OutputBase, OutputType
from aotlens.capture.operators import aten
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured
from aotlens.capture.storage import view_base
from aotlens.capture.subclasses import inner_tensors, is_wrapper, value_of
from aotlens.ir.program import Node
from aotlens.ir.subclasses import Wrapped
from aotlens.torch_api.autograd import shares_version_counter


def view_of_output(captured: Captured, index: int, group: list[int]) -> OutputAliasInfo | None:
    """A view, without a gradient, of another result: autograd is told of a write through either."""
    recorder, outputs = captured.recorder, captured.outputs
    value = outputs[index]
    first = _viewed_output(captured, value, group)
    if first is None or first == index:
        return None
    if any(outputs[i].requires_grad or is_wrapper(outputs[i]) for i in (index, first)):
        return None
    chain = relative_chain(recorder, outputs[first], value)
    return OutputAliasInfo(
        index=index,
        output_type=OutputType.ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT,
        reason=f"a view on the memory of result {first}",
        value=None,
        base=OutputBase(first),
        chain=chain or (),
        geometry=geometry_on_base(captured, chain, value, outputs[first]),
        detached_after=None
        if view_base(value) is view_base(outputs[first])
        else views_before_detach(recorder, value, chain),
        tensor=value,
    )


def _viewed_output(captured: Captured, value: Any, group: list[int]) -> int | None:
    """The result that the value is a view of, or one of which all that count together are views."""
    outputs, base = captured.outputs, view_base(value)
    of_result = next((i for i in group if outputs[i] is base), None) if base is not value else None
    if of_result is not None and shares_version_counter(outputs[of_result], value):
        return of_result
    relatives = [
        i for i in group if view_base(outputs[i]) is base or shares_version_counter(outputs[i], value)
    ]
    return next(
        (i for i in relatives if _is_base_of_all(captured.recorder, outputs[i], outputs, relatives)), None
    )


def _is_base_of_all(recorder: Recorder, start: Any, outputs: Sequence[Any], group: list[int]) -> bool:
    """Whether views lead from a tensor to each of some results; not so from one of several views.

    As a value of its own autograd would let a caller write to that, as eager does not.
    """
    if any(step.result is not None for step in recorder.tracked(start).chain):
        return False
    return all(relative_chain(recorder, start, outputs[i]) is not None for i in group)


def intermediate_base(captured: Captured, group: list[int]) -> Any:
    """What stays inside and results without a gradient are views of; None where a result stands in for it.

    No result could: autograd cuts what is written through a view out of the tensor under it.
    """
    recorder, outputs = captured.recorder, captured.outputs
    values = [outputs[i] for i in group]
    if len(group) == 1 or any(is_wrapper(value) for value in values):
        return None
    value = next((tensor for tensor in values if _viewed_output(captured, tensor, group) is None), None)
    if value is None:
        return None
    starts = [
        *(view_base(tensor) for tensor in values if view_base(tensor) is not tensor),
        recorder.tracked(value).storage.base_tensor,
    ]
    on_it = (
        tensor for tensor in starts if recorder.tracked(tensor).storage is recorder.tracked(value).storage
    )
    fit = (tensor for tensor in on_it if shares_version_counter(tensor, value))
    return next((tensor for tensor in fit if _is_base_of_all(recorder, tensor, outputs, group)), None)


def view_of_intermediate_base(
    captured: Captured, index: int, start: Any, base: IntermediateBaseOf
) -> OutputAliasInfo:
    """A result without a gradient, made again from what stays inside."""
    value = captured.outputs[index]
    chain = relative_chain(captured.recorder, start, value)
    return OutputAliasInfo(
        index=index,
        output_type=OutputType.ALIAS_OF_INTERMEDIATE,
        reason="shares memory with another result, so it is made again from what both are views of",
        value=None,
        base=base,
        chain=chain or (),
        requires_grad=value.requires_grad,
        detached_after=None
        if view_base(value) is view_base(start)
        else views_before_detach(captured.recorder, value, chain),
        has_own_version=not shares_version_counter(value, start),
        is_alias_leaf=is_created_leaf(value),
        tensor=value,
    )


def graph_output_or_duplicate(captured: Captured, index: int, group: list[int]) -> OutputAliasInfo:
    """The graph's own result, or another tensor object over an earlier result with the same value."""
    recorder, value = captured.recorder, captured.outputs[index]
    chain = recorder.tracked(value).chain
    for other in group[: group.index(index)]:
        same_elements = recorder.tracked(captured.outputs[other]).chain == chain
        if same_elements and view_of_output(captured, other, group) is None:
            return OutputAliasInfo(
                index=index,
                output_type=OutputType.ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT,
                reason=f"the same memory as result {other}",
                value=None,
                base=OutputBase(other),
                requires_grad=value.requires_grad,
                detached_after=0,
                has_own_version=not shares_version_counter(value, captured.outputs[other]),
                is_alias_leaf=is_created_leaf(value),
                tensor=value,
            )
    if len(group) > 1 or _is_expanded(value):
        as_view_of_storage(recorder, value)
    return graph_output(recorder, index, value)


def as_view_of_storage(recorder: Recorder, value: Any) -> None:
    """Make the graph's value a view of the storage's: the one that a write left lies in memory of its own."""
    tracked = recorder.tracked(value)
    if tracked.storage.version and tracked.chain:
        tracked.storage.views = {}
        tracked.version = -1


def _is_expanded(value: Any) -> bool:
    """Whether one element is many, which no copy of the value is."""
    return any(isinstance(stride, int) and stride == 0 for stride in value.stride())


def graph_output(recorder: Recorder, index: int, value: Any) -> OutputAliasInfo:
    """A result that is handed out as the graph computed it."""
    node = value_of(recorder, value)
    if isinstance(node, Wrapped):
        tensors = dict(inner_tensors(value))
        node = node.map(lambda path, inner: _with_strides_of(recorder, inner, tensors[path]))
    else:
        node = _with_strides_of(recorder, node, value)
    base = value._base
    unsafe = base is not None and value.requires_grad and base.requires_grad
    reason = "its base does not leave the function" if unsafe else "memory of its own"
    output_type = OutputType.UNSAFE_VIEW_ALIAS if unsafe else OutputType.NON_ALIAS
    return OutputAliasInfo(
        index=index,
        output_type=output_type,
        reason=reason,
        value=node,
        requires_grad=value.requires_grad,
        is_new_leaf=value.requires_grad and grad_fn_of(value) is None,
        tensor=value,
    )


def _with_strides_of(recorder: Recorder, node: Node, value: Any) -> Node:
    """The same values in eager's strides."""
    if node.val.stride() == value.stride() or value.numel() <= 1:
        return node
    empty = recorder.emit(aten.new_empty_strided.default, node, list(value.shape), list(value.stride()))
    return recorder.emit(aten.copy.default, empty, node)
