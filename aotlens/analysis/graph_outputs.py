"""Outputs that the wrapper returns as the graph computed them.

Invariant: such an output has eager's strides, and shares storage with other outputs where it does in eager.
"""

from dataclasses import replace
from typing import Any

from aotlens.analysis.bases import Start, alias_of, relative_chain
from aotlens.analysis.records import OutputAliasInfo, OutputBase, OutputType
from aotlens.capture.builder import Builder
from aotlens.capture.operators import aten
from aotlens.capture.records import Captured
from aotlens.capture.storage import view_base
from aotlens.capture.subclasses import inner_tensors, is_wrapper, value_of
from aotlens.ir.program import Node
from aotlens.ir.subclasses import Wrapped
from aotlens.torch_api.autograd import shares_version_counter


def view_of_output(captured: Captured, index: int, group: list[int]) -> OutputAliasInfo | None:
    """Describe an output without gradient as a view of another output: a write to one bumps both.

    Returns None if it is no such view.
    """
    outputs = captured.outputs
    value = outputs[index]
    first = _viewed_output(captured, value, group)
    if first is None or first == index:
        return None
    pair = outputs[index], outputs[first]
    if any(captured.exit_of(output).requires_grad or is_wrapper(output) for output in pair):
        return None
    return alias_of(
        captured,
        index,
        Start(OutputBase(first), outputs[first], relative_chain(captured, outputs[first], value)),
        OutputType.ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT,
        f"a view of output {first}",
    )


def _viewed_output(captured: Captured, value: Any, group: list[int]) -> int | None:
    """Return the output that the value, or its whole version group, is a view of; None if there is none."""
    outputs, base = captured.outputs, captured.exit_of(value).start
    base_index = next((i for i in group if outputs[i] is base), None) if base is not value else None
    if base_index is not None and shares_version_counter(outputs[base_index], value):
        return base_index
    relatives = [
        i for i in group if view_base(outputs[i]) is base or shares_version_counter(outputs[i], value)
    ]
    return next((i for i in relatives if _is_base_of_all(captured, outputs[i], relatives)), None)


def _is_base_of_all(captured: Captured, start: Any, group: list[int]) -> bool:
    """Return True if view operators lead from a tensor to each output in `group`.

    Return False for one of several outputs of an operator such as `unbind`: as a value of its own, autograd
    would let a caller write to it, which eager forbids.
    """
    if any(step.result is not None for step in captured.recorded.tracked(start).chain):
        return False
    return all(relative_chain(captured, start, captured.outputs[i]) is not None for i in group)


def intermediate_base(captured: Captured, group: list[int]) -> Any:
    """Return the intermediate that all outputs of a group without gradients are views of.

    Return None where the outputs are returned as the graph computed them: a single output, a group with a
    subclass, or one in which an output is itself the base.  An output cannot be the base if autograd would
    not propagate a write through a view of it.
    """
    recorded, outputs = captured.recorded, captured.outputs
    values = [outputs[i] for i in group]
    if len(group) == 1 or any(is_wrapper(value) for value in values):
        return None
    value = next((tensor for tensor in values if _viewed_output(captured, tensor, group) is None), None)
    if value is None:
        return None
    candidates = [
        *(view_base(tensor) for tensor in values if view_base(tensor) is not tensor),
        recorded.tracked(value).storage.base_tensor,
    ]
    on_storage = (
        tensor for tensor in candidates if recorded.tracked(tensor).storage is recorded.tracked(value).storage
    )
    sharing_version = (tensor for tensor in on_storage if shares_version_counter(tensor, value))
    return next((tensor for tensor in sharing_version if _is_base_of_all(captured, tensor, group)), None)


def graph_output_or_duplicate(
    captured: Captured, builder: Builder, index: int, group: list[int]
) -> OutputAliasInfo:
    """Describe an output as the graph's value, or as a second tensor object over an earlier output."""
    recorded, value = captured.recorded, captured.outputs[index]
    chain = recorded.tracked(value).chain
    for other in group[: group.index(index)]:
        same_elements = recorded.tracked(captured.outputs[other]).chain == chain
        if same_elements and view_of_output(captured, other, group) is None:
            info = alias_of(
                captured,
                index,
                Start(OutputBase(other), captured.outputs[other], ()),
                OutputType.ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT,
                f"the same memory as output {other}",
            )
            return replace(info, detached_after=0)
    if len(group) > 1 or _is_expanded(value):
        builder.use_view_of_storage(value)
    return graph_output(captured, builder, index)


def _is_expanded(value: Any) -> bool:
    """Return True if several elements share one memory location; a copy would not preserve that."""
    return any(isinstance(stride, int) and stride == 0 for stride in value.stride())


def graph_output(captured: Captured, builder: Builder, index: int) -> OutputAliasInfo:
    """Describe an output that the wrapper returns as the graph computed it."""
    value = captured.outputs[index]
    at_exit = captured.exit_of(value)
    node = value_of(builder, value)
    if isinstance(node, Wrapped):
        tensors = dict(inner_tensors(value))
        node = node.map(lambda path, inner: _with_strides_of(builder, inner, tensors[path]))
    else:
        node = _with_strides_of(builder, node, value)
    unsafe = at_exit.requires_grad and at_exit.base_requires_grad
    reason = "its base does not leave the function" if unsafe else "memory of its own"
    output_type = OutputType.UNSAFE_VIEW_ALIAS if unsafe else OutputType.NON_ALIAS
    return OutputAliasInfo(
        index=index,
        output_type=output_type,
        reason=reason,
        value=node,
        requires_grad=at_exit.requires_grad,
        is_leaf=at_exit.requires_grad and at_exit.grad_fn is None,
        tensor=value,
    )


def _with_strides_of(builder: Builder, node: Node, value: Any) -> Node:
    """Return a node with the same values in eager's strides."""
    if node.val.stride() == value.stride() or value.numel() <= 1:
        return node
    empty = builder.emit(aten.new_empty_strided.default, node, list(value.shape), list(value.stride()))
    return builder.emit(aten.copy.default, empty, node)
