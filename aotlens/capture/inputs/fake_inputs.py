"""Flat inputs as fake tensors, named after the user's arguments.

Invariant: identical inputs remain one tensor, inputs on one storage remain on one storage, and an argument is
a leaf exactly when the caller's tensor is one.  Of a wrapper subclass every inner tensor becomes a graph
input, named as the user would (`x.a`).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from aotlens.capture.graph import Recording
from aotlens.capture.inputs.synthetic_bases import BaseGroup, make_synthetic_base, overlapping_groups
from aotlens.capture.inputs.tensor_inputs import (
    MakeNonLeaf,
    copy_tensor_class,
    fake_tensor_of,
    tensor_input,
    tracked_input,
)
from aotlens.capture.mutations.writability import record_inference_argument
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import CapturedInput, OpenInput
from aotlens.capture.storage import Storage, find_tracked, ranges_overlap
from aotlens.capture.subclasses import Path, inner_tensors, is_fake, is_wrapper, rebuild
from aotlens.capture.symbols.numbers import as_symbol
from aotlens.ir.names import node_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.ir.slots import Buffer, FlatInput, FreeTensor, Parameter, SymIntInput
from aotlens.ir.subclasses import is_plain
from aotlens.torch_api.dynamo.state import specialise_sizes
from aotlens.torch_api.fake.tensors import FakeTensorMode, to_fake
from aotlens.torch_api.modes import below_views
from aotlens.torch_api.objects import ScriptObject
from aotlens.torch_api.transforms import is_functional
from aotlens.unsupported import unsupported


def make_inputs(
    recorder: Recorder, values: list[Any], slots: tuple[FlatInput, ...], dynamic: bool
) -> tuple[tuple[OpenInput, ...], tuple[BaseGroup, ...]]:
    """Return one captured input per flat value, and the overlapping groups; call in the fake mode.

    A ragged size is a symbol that cannot be compared with others, so beside one all sizes are static.
    """
    dynamic = dynamic and not any(is_wrapper(value) and _has_ragged_size(value) for value in values)
    base_groups = tuple(
        make_synthetic_base(recorder, group, values, slots) for group in overlapping_groups(values, dynamic)
    )
    members = {
        index: captured_input
        for base_group in base_groups
        for index, captured_input in base_group.members.items()
    }
    first: dict[int, int] = {}
    storages: dict[int, list[int]] = {}
    captured: list[OpenInput] = []
    for index, (value, slot) in enumerate(zip(values, slots, strict=True)):
        if isinstance(value, torch.Tensor):
            same = first.setdefault(id(value), index)
            if same != index:
                captured.append(_duplicate(captured[same], slot, same))
                continue
            captured_input = members.get(index) or _tensor(recorder, value, slot, dynamic)
            record_inference_argument(recorder, captured_input.argument, value)
            for storage in _storage_identities(captured_input.fake):
                storages.setdefault(storage, []).append(index)
        else:
            captured_input = _number(recorder, value, slot)
        captured.append(captured_input)
    return _with_sharing(tuple(captured), storages), base_groups


def _duplicate(first: OpenInput, slot: FlatInput, index: int) -> OpenInput:
    return CapturedInput(
        slot,
        first.argument,
        None,
        first.fake,
        first.leaf,
        first.storage,
        is_leaf=first.is_leaf,
        duplicate_of=index,
    )


def _tensor(recorder: Recorder, value: Any, slot: FlatInput, dynamic: bool) -> OpenInput:
    if is_wrapper(value):
        return _wrapper_input(recorder, value, slot, node_name(slot.name), dynamic)
    if is_functional(value):
        raise unsupported("functionalize-outside", recorder.span, input=slot.name)
    if kind := unsupported_kind(value):
        raise unsupported("input-layout", recorder.span, kind=kind, input=slot.name)
    fake = fake_of_input(recorder.fake_mode, value, slot, dynamic)
    return tensor_input(recorder, slot, fake, value, node_name(slot.name))


def unsupported_kind(value: Any) -> str:
    """Return the kind of tensor that has no fake tensor: nested, quantised, or of a sparse layout."""
    if is_wrapper(value):
        return ""
    if value.is_nested:
        return "nested"
    if value.is_quantized:
        return "quantized"
    return "" if value.layout is torch.strided else str(value.layout)


def fake_of_input(fake_mode: FakeTensorMode, value: Any, slot: FlatInput, dynamic: bool) -> Any:
    """Return the fake tensor of an input, always the same one; call in the fake mode."""
    if is_wrapper(value):
        return _fake_wrapper(fake_mode, value, dynamic)
    return fake_tensor_of(fake_mode, value, dynamic and not isinstance(slot, (Parameter, Buffer, FreeTensor)))


def _number(recorder: Recorder, value: Any, slot: FlatInput) -> OpenInput:
    """Capture a leaf that is no tensor: a symbol, a generator or torchbind object, or a constant."""
    if isinstance(slot, SymIntInput):
        if type(value) is int:
            value = as_symbol(recorder.fake_mode.shape_env, value, slot.name)
        node = Node(recorder.name(node_name(slot.name)), None, (), {}, value, Origin(NO_ORIGIN, ""))
        recorder.symbols.define(value, node)
        return CapturedInput(slot, value, node)
    if isinstance(value, torch.Generator):
        node, argument = recorder.random.graph_input(slot.name, node_name(slot.name), value)
        return CapturedInput(slot, argument, node)
    if isinstance(value, ScriptObject):
        node, argument = recorder.torchbind.graph_input(node_name(slot.name), value)
        return CapturedInput(slot, argument, node)
    if isinstance(value, np.ndarray):
        raise unsupported("numpy-input", recorder.span, input=slot.name)
    return CapturedInput(slot, value, None)


def free_tensor_inputs(recorder: Recorder, first: int) -> tuple[OpenInput, ...]:
    """Return inputs for real tensors that the function read and that require grad, for their gradients."""
    return tuple(
        CapturedInput(
            FreeTensor(f"a tensor from outside, {list(tensor.shape)}", first + index),
            argument=node.val,
            node=node,
            fake=node.val,
            leaf=tensor,
            is_leaf=tensor.is_leaf,
            free_tensor=tensor,
        )
        for index, (node, tensor) in enumerate(recorder.outside_inputs)
    )


def _with_sharing(inputs: tuple[OpenInput, ...], storages: dict[int, list[int]]) -> tuple[OpenInput, ...]:
    """Set the inputs of each storage."""
    result = []
    for index, captured_input in enumerate(inputs):
        storage = captured_input.storage
        if storage is None or captured_input.duplicate_of is not None:
            result.append(captured_input)
            continue
        identities = _storage_identities(captured_input.fake)
        others = sorted({other for identity in identities for other in storages[identity]} - {index})
        if captured_input.wrapped is not None:
            _share_inner(index, captured_input, [(other, inputs[other].fake) for other in others])
        else:
            overlapping = [other for other in others if overlaps(captured_input.fake, inputs[other].fake)]
            wrappers = (inputs[other] for other in overlapping if inputs[other].wrapped is not None)
            storage.wrapper_name = next((wrapper.slot.name for wrapper in wrappers), "")
            storage.inputs = storage.inputs or (index, *overlapping)
        result.append(
            replace(captured_input, shares_storage_with=tuple(others)) if others else captured_input
        )
    return tuple(result)


def _wrapper_input(recording: Recording, value: Any, slot: FlatInput, name: str, dynamic: bool) -> OpenInput:
    """Capture one wrapper; call inside the recorder's fake mode."""
    fake_mode = recording.fake_mode
    fake = value if is_fake(value, fake_mode) else _fake_wrapper(fake_mode, value, dynamic)

    def make_inner(path: Path, inner: Any) -> tuple[Node, Any]:
        if inner.layout is not torch.strided:
            inside = ".".join((slot.name, *path))
            raise unsupported("inner-tensor-layout", layout=inner.layout, input=inside)
        node_name = "_".join((name, *(part.strip("_") for part in path)))
        node = Node(recording.name(node_name), None, (), {}, inner, Origin(NO_ORIGIN, ""))
        alias = _untracked(path, inner)[1]
        recording.track(alias, Storage(node, alias))
        recording.symbols.define_sizes(node)
        return node, alias

    with torch.no_grad():
        wrapped, argument = rebuild(fake, make_inner)
    argument, leaf = _with_grad(value, fake, argument)
    copy_tensor_class(argument, value)
    node = Node(recording.name(name), None, (), {}, fake, Origin(NO_ORIGIN, ""))
    recording.track(argument, Storage(node, argument))
    return tracked_input(recording, slot, node, argument, leaf=leaf, is_leaf=value.is_leaf, wrapped=wrapped)


def _fake_wrapper(mode: FakeTensorMode, value: Any, dynamic: bool) -> Any:
    """Return a fake wrapper; if its sizes are static, Dynamo is made to recompile for others.

    Dynamo does not recompile for another longest or shortest row of a jagged tensor: the inner tensors that
    have these sizes keep their symbols.
    """
    if dynamic and _sizes_may_vary(value):
        return to_fake(mode, value, static_shapes=False)
    symbolic_inner = specialise_sizes(mode, value, jagged=_has_ragged_size(value))
    fake = to_fake(mode, value, static_shapes=True)
    for name, inner in symbolic_inner.items():
        setattr(fake, name, inner)
    return fake


def _sizes_may_vary(value: Any) -> bool:
    """Return True if sizes can be symbols: the inner tensors have all of them, and guards cover the rest.

    Sizes that only the wrapper knows (the global sizes around a shard) are not graph inputs. An object in the
    subclass's metadata is compared as a whole, including its sizes.
    """
    if _has_ragged_size(value) or not is_plain(value.__tensor_flatten__()[1]):
        return False
    carried = {size for _, inner in inner_tensors(value) for size in inner.shape}
    return carried.issuperset(size for size in value.shape if size > 1)


def _has_ragged_size(value: Any) -> bool:
    """Return True if a real wrapper has a ragged size, as a jagged tensor does."""
    return any(isinstance(size, torch.SymInt) for size in value.shape)


def _with_grad(value: Any, fake: Any, argument: Any) -> tuple[Any, Any]:
    """Return the argument and its leaf, which requires grad as the caller's tensor does."""
    if not value.requires_grad:
        return argument, None
    if value.is_leaf:
        argument.requires_grad_()
        return argument, argument
    with torch.no_grad():
        leaf = rebuild(fake, _untracked)[1].requires_grad_()
    with torch.enable_grad():
        return MakeNonLeaf.apply(leaf, lambda: argument), leaf


def _untracked(path: Path, inner: Any) -> tuple[Any, Any]:
    with torch.no_grad(), below_views():
        return None, inner.detach()


def _storage_identities(fake: Any) -> Iterator[int]:
    """Yield the storages of a flat input; a wrapper may have several."""
    if is_wrapper(fake):
        for _, inner in inner_tensors(fake):
            yield from _storage_identities(inner)
    else:
        yield fake.untyped_storage()._cdata


def overlaps(left: Any, right: Any) -> bool:
    """Return True if two flat inputs, wrapped or not, have an element in common."""
    return any(
        ranges_overlap(left_inner, right_inner)
        for _, left_inner in inner_tensors(left)
        for _, right_inner in inner_tensors(right)
        if left_inner.untyped_storage()._cdata == right_inner.untyped_storage()._cdata
    )


def _share_inner(index: int, captured_input: OpenInput, others: list[tuple[int, Any]]) -> None:
    """Set the inputs of each inner storage and of the wrapper's own, including overlaps within it."""
    assert captured_input.storage is not None  # created by _wrapper_input
    captured_input.storage.inputs = (index,)
    initial_inner = dict(inner_tensors(captured_input.fake))
    for path, tensor in inner_tensors(captured_input.argument):
        siblings = [(index, inner) for other_path, inner in initial_inner.items() if other_path != path]
        shared = [other for other, fake in (*others, *siblings) if overlaps(initial_inner[path], fake)]
        tracked = find_tracked(tensor)
        assert tracked is not None  # tracked by _wrapper_input
        storage = tracked.storage
        storage.inputs, storage.wrapper_name = (index, *shared), captured_input.slot.name
