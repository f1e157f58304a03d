"""Record writes to tensors as new values, including writes to lists of tensors (`torch._foreach_*_`).

Invariant: after a write, every view of the written storage reads the new value: the inverse of each view on
the written tensor's chain is recorded, from the tensor up to the storage's base.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.autograd.graph import increment_version

from aotlens.capture.as_strided import (
    MAY_REPEAT,
    OTHER_ELEMENTS,
    check_within_input,
    overlaps_itself,
    with_storage_offset,
)
from aotlens.capture.graph import Recording
from aotlens.capture.mutations.recorded_nodes import (
    note_metadata_mutation,
    preserve_values,
    use_synthetic_base,
)
from aotlens.capture.mutations.writability import (
    check_writable,
    reject_inference_write,
    reject_partial_overlap,
)
from aotlens.capture.operators import Operator, aten, missing_defaults
from aotlens.capture.result_fixes import in_place_mask_value, is_random_mask, with_layout_of
from aotlens.capture.storage import Storage, Tracked, find_tracked, ranges_overlap, repeated_dims, set_tracked
from aotlens.capture.views import ViewStep, inverse_write, with_lazy_bits_of
from aotlens.ir.program import Node, op_name
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.unsupported import unsupported

FOREACH = "aten._foreach_"
"""In eager such an operator advances version counters like single writes; as one operator it advances
none."""


def _calls_per_tensor(
    recording: Recording, args: tuple[Any, ...], targets: list[Any]
) -> list[tuple[Any, ...]]:
    """Return the arguments of one call per written tensor; empty if a single call is equivalent.

    It is, unless a written tensor's memory also occurs at another index of a list.
    """
    indices = defaultdict[int, set[int]](set)
    for arg in args:
        for index, item in enumerate(arg if isinstance(arg, (list, tuple)) else ()):
            if type(item) is FakeTensor:
                indices[id(recording.tracked(item).storage)].add(index)
    if all(len(indices[id(recording.tracked(target).storage)]) == 1 for target in targets):
        return []
    return [tuple(_item_for(arg, index, len(targets)) for arg in args) for index in range(len(targets))]


def _reject_intermediate_views(recording: Recording, targets: list[Any]) -> None:
    """Reject views whose grad_fn covers only their own write, while a later write changes their values.

    Eager first advances all versions and then regenerates the grad_fns one by one; so autograd considers such
    a view up to date.

    Raises:
        UnsupportedError: two of the written tensors overlap, and the first is a view with a gradient.
    """
    if not torch.is_grad_enabled():
        return
    for index, target in enumerate(targets):
        base = recording.originals.get(id(target), target)._base
        storage = recording.tracked(target).storage
        later = (other for other in targets[index + 1 :] if recording.tracked(other).storage is storage)
        if base is not None and base.requires_grad and any(ranges_overlap(target, other) for other in later):
            raise unsupported("foreach-writes-twice", recording.span)


def _item_for(arg: Any, index: int, count: int) -> Any:
    """Return one item of a list with an item per written tensor; other arguments unchanged."""
    per_target = isinstance(arg, (list, tuple)) and len(arg) == count
    return [arg[index]] if per_target else arg


LEAKY_RELUS = {
    aten.rrelu_with_noise.default: aten.leaky_relu.default,
    aten.rrelu_with_noise_.default: aten.leaky_relu_.default,
}


@dataclass(frozen=True, slots=True)
class WritingCall:
    """One call of an operator that writes to its arguments."""

    func: Any
    operator: Operator
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        return op_name(self.func)

    @property
    def targets(self) -> list[Any]:
        """The written tensors, with lists flattened, in the schema's order."""
        written = [
            self.args[key] if isinstance(key, int) else self.kwargs[key] for key in self.operator.written
        ]
        return [t for item in written for t in (item if isinstance(item, (list, tuple)) else (item,))]


def record_metadata_mutation(recording: Recording, call: WritingCall) -> Any:
    """Record `t_` and similar: the tensor becomes another view of its storage."""
    tensor = call.args[0]
    tracked = recording.tracked(tensor)
    if call.func is aten.detach_.default:
        if tracked.chain in tracked.storage.overlapping_inputs:
            raise unsupported("detach-of-overlapping-input", recording.span)
        return call.func(*call.args, **call.kwargs)
    reject_inference_write(recording, tensor)
    functional = call.operator.functional
    if functional is None:
        raise unsupported("operator-metadata-mutation", recording.span, operator=call.name)
    step = ViewStep.in_current_modes(functional, call.args[1:], call.kwargs, in_place=True)
    node, step = _value_as_view(recording, tensor, step)
    before, unseen = tensor.shape, not torch.is_grad_enabled() and not tracked.storage.inputs
    preserve_values(recording, tensor)
    if tensor is tracked.storage.base_tensor and tracked.storage.initial_tensor is None:
        tracked.storage.initial_tensor = tensor.detach()
    call.func(*call.args, **call.kwargs)
    unseen = unseen and tensor._base is None  # the grad_fn of a view is regenerated with its new geometry
    if unseen and tensor.requires_grad and tensor.grad_fn is not None and tensor.shape != before:
        raise unsupported("resize-under-no-grad", recording.span, operator=call.name)
    mutation = recording.new_write(tracked.chain, tracked.storage.version)
    note_metadata_mutation(recording, tracked.storage, mutation)
    tracked.storage.last_metadata_step = step
    set_tracked(tensor, Tracked(tracked.storage, (*tracked.chain, step), node, tracked.version))
    return tensor


def _value_as_view(recording: Recording, tensor: Any, step: ViewStep) -> tuple[Node, ViewStep]:
    """Return the tensor's node as this view of itself, and the step with its storage offset."""
    tracked, source = recording.tracked(tensor), recording.node_of(tensor)
    if step.op is not aten.as_strided.default:
        return step.apply(recording, source), step
    step = with_storage_offset(step, tensor, tracked, recording.span)
    node = recording.replay(tracked.storage, (*tracked.chain, step))
    check_within_input(tracked.storage, step, node.val, recording.span)
    return node, step


def record_mutation(recording: Recording, call: WritingCall) -> Any:
    """Update every written tensor; return what the operator returns."""
    if call.operator.functional is None:
        raise unsupported("no-functional-variant", recording.span, operator=call.name)
    targets = call.targets
    is_foreach = call.name.startswith(FOREACH)
    if is_foreach and (calls := _calls_per_tensor(recording, call.args, targets)):
        for args in calls:
            record_mutation(recording, WritingCall(call.func, call.operator, args, call.kwargs))
        _reject_intermediate_views(recording, targets)
        return targets if call.func._schema.returns else None
    for target in targets:
        check_writable(recording, target, call.func, (call.args, call.kwargs))
    reject_partial_overlap(recording, call.func, targets, call.args)
    values, results = _new_values(recording, call, len(targets))
    for target, value in zip(targets, values, strict=True):
        record_write(recording, target, _in_target_dtype(recording, call, target, value))
    if is_foreach:
        increment_version([target for target in targets if not target.is_inference()])
    if not call.func._schema.returns:
        return None
    return call.operator.returned_value(targets) if call.operator.returned else results


def _new_values(recording: Recording, call: WritingCall, count: int) -> tuple[list[Node], Any]:
    """Return the written tensors' new values, and the operator's other results."""
    if call.func is aten.copy_.default:
        return [_copy_value(recording, *call.args[:2])], None
    functional = call.operator.functional
    inputs = {key: value for key, value in call.kwargs.items() if key not in call.operator.written}
    inputs |= {key: getattr(call.targets[0], key) for key in call.operator.result_options}
    args = (*call.args, *missing_defaults(call.func, functional, len(call.args)))
    node_args, keywords = tuple([recording.argument(arg) for arg in args]), recording.keywords(inputs)
    if call.operator.random and is_random_mask(call.func):
        return [in_place_mask_value(recording, functional, node_args, keywords)], None
    node = recording.emit(functional, *node_args, **keywords)
    nodes = _flat_results(recording, node)
    others = nodes[: len(nodes) - count]
    for other in others:
        recording.track(other.val, Storage(other, other.val))
    results = tuple(other.val for other in others)
    return nodes[len(nodes) - count :], results[0] if len(results) == 1 else results


def _flat_results(recording: Recording, node: Any) -> list[Node]:
    """Return one node per tensor that the functional variant returns, with lists flattened."""
    if type(node) is Node:
        if not isinstance(node.val, (list, tuple)):
            return [node]
        node = [recording.item(node, index) for index in range(len(node.val))]
    return [single for item in node for single in _flat_results(recording, item)]


def _copy_value(recording: Recording, target: Any, source: Any) -> Node:
    """Return the value of `target` after `copy_`: a copy of the source in the target's layout.

    Torch passes the number of `x.copy_(1.0)` as a number.
    """
    if not isinstance(source, torch.Tensor):
        return recording.emit(aten.fill.Scalar, recording.node_of(target), source)
    node = recording.node_of(source)
    same = (
        node.val.dtype == target.dtype
        and node.val.shape == target.shape
        and node.val.stride() == target.stride()
        and node.val.device == target.device
    )
    if same:
        return recording.emit(aten.clone.default, node)
    return recording.emit(aten.copy.default, recording.node_of(target), node)


def _in_target_dtype(recording: Recording, call: WritingCall, target: Any, value: Node) -> Node:
    """Return the new value in the written tensor's dtype; a mismatch raises the operator's own error."""
    if repeated := repeated_dims(target):  # expanded again, so that later results have eager's layout
        size = value.val.shape
        for dim in repeated:
            value = recording.emit(aten.slice.Tensor, value, dim, 0, 1)
        value = recording.emit(aten.expand.default, value, list(size))
    if value.val.shape == target.shape and value.val.dtype == target.dtype:
        return with_layout_of(recording, target, value)
    before = target.shape
    preserve_values(recording, target)
    call.func(*call.args, **call.kwargs)
    if value.val.shape != target.shape:
        raise unsupported("write-of-other-size", recording.span, operator=call.name)
    if target.shape != before:
        if torch.Tag.pointwise in call.func.tags and target.stride() != value.val.stride():
            raise unsupported("out-strides", recording.span, operator=call.name)
        _record_resize(recording, target)
    if value.val.dtype == target.dtype:
        return value
    return recording.emit(aten._to_copy.default, value, dtype=target.dtype)


def _record_resize(recording: Recording, target: Any) -> None:
    """Record that an operator resized a tensor for its result."""
    storage = recording.tracked(target).storage
    if recording.tracked(target).chain:
        raise unsupported("out-resizes-view", recording.span)
    if target.requires_grad and target.grad_fn is not None:
        raise unsupported("out-resizes-under-no-grad", recording.span)
    for other in (*recording.seen_tensors(), *((storage.base_tensor,) if storage.inputs else ())):
        other_tracked = find_tracked(other)
        if other is target or other_tracked is None:
            continue
        if other_tracked.storage is storage and (other_tracked.chain or storage.inputs):
            raise unsupported("resize-of-viewed-storage", recording.span)
    storage.is_enlarged = bool(storage.inputs)


def leaky_relu_for(call: WritingCall) -> Callable[[], Any] | None:
    """Return RReLU in eval mode, which is not random and writes no noise; None for other calls."""
    if call.func not in LEAKY_RELUS:
        return None
    arguments = call.args[2:5]  # after the tensor and the noise; torch omits those that are defaults
    lower, upper, training = arguments + (0.125, 1 / 3, False)[len(arguments) :]
    return None if training else partial(LEAKY_RELUS[call.func], call.args[0], (lower + upper) / 2)


def only_reads(call: WritingCall) -> bool:
    """Return True if the call writes nothing although the schema says so: batch norm in eval mode."""
    if any(target is None for target in call.targets):
        return True
    return bool(call.func._schema.name.endswith("native_batch_norm") and not call.args[5])


def record_write(recording: Recording, target: Any, value: Node) -> None:
    """Update a tensor's storage with the value of a write through this tensor."""
    tracked = recording.tracked(target)
    storage = tracked.storage
    if recording.current_inputs is not None and storage.inputs:
        recording.current_inputs.note_access(tracked, is_write=True)
    use_synthetic_base(recording, storage)
    if storage.exceeds_view and _any_gradient(recording):
        # Eager's autograd replays that view on the base, ours on the view.
        raise unsupported("as-strided-beyond-written-view", recording.span)
    value = with_lazy_bits_of(recording, target, value)
    new = _value_of_base(recording, tracked, target, value)
    if storage.base_tensor.requires_grad and not target.requires_grad:
        recording.note_hidden_change(target)
    storage.base = with_lazy_bits_of(recording, storage.base.val, new)
    storage.version += 1
    storage.last_metadata_step = None
    storage.views = {tracked.chain: value} if tracked.chain else {}
    storage.writes += (recording.new_write(tracked.chain),)
    tracked.node, tracked.version = value, storage.version
    if getattr(target, "constant", None) is not None:
        recording.fake_mode.fake_tensor_converter.invalidate_constant_aliases(target.constant)


def _value_of_base(recording: Recording, tracked: Tracked, target: Any, value: Node) -> Node:
    """Return the value of the storage's base after the tensor received this value."""
    chain = _written_chain(recording, tracked, target)
    for end in range(len(chain), 0, -1):
        source, step = recording.source_of_view(tracked.storage, chain[:end])
        value = inverse_write(recording, source, step, value)
        if source is tracked.storage.base:
            break
    return value


def _written_chain(recording: Recording, tracked: Tracked, target: Any) -> tuple[ViewStep, ...]:
    """Return the views that a write passes back through; one `as_strided` if a view repeats elements.

    Raises:
        UnsupportedError: no strides over the storage's base can address the target's elements.
    """
    chain = tracked.chain
    ends = [end for end in range(1, len(chain)) if chain[end - 1].op in MAY_REPEAT]
    if not any(overlaps_itself(recording.replay(tracked.storage, chain[:end]).val) for end in ends):
        return chain
    if any(step.op in OTHER_ELEMENTS for step in chain):
        raise unsupported("write-to-repeated-elements", recording.span)
    geometry = (list(target.shape), list(target.stride()), target.storage_offset())
    return (ViewStep(aten.as_strided.default, geometry, offset=geometry[2]),)


def _any_gradient(recording: Recording) -> bool:
    on_arguments = any(getattr(value, "requires_grad", False) for value in recording.originals.values())
    return on_arguments or bool(recording.outside_inputs)
