"""Storage swaps and resizes: `set_`, `resize_` and assignments to `.data`.

Invariant: after a swap the tensor is tracked on its new storage, and its aliases remain on the old one; the
analysis detects a swapped input by comparing its storage with the initial one.
"""

from dataclasses import replace
from math import prod
from typing import Any

import torch

from aotlens.capture.autograd.graph_walk import may_be_leaf
from aotlens.capture.events import EventKind
from aotlens.capture.graph import Recording
from aotlens.capture.invalid_views import replayed_geometry
from aotlens.capture.mutations.in_place import WritingCall
from aotlens.capture.mutations.recorded_nodes import note_metadata_mutation, preserve_values
from aotlens.capture.operators import RESIZE_STORAGE, aten
from aotlens.capture.storage import Geometry, Storage, Tracked, geometry_of, set_tracked
from aotlens.capture.views import ViewStep
from aotlens.torch_api.autograd import has_version_counter
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.unsupported import unsupported


def record_storage_swap(recording: Recording, call: WritingCall) -> Any:
    """Record an operator that gives its first argument another storage, or resizes its storage."""
    target = call.args[0]
    packet = call.func.overloadpacket
    if packet is RESIZE_STORAGE:
        record_storage_resize(recording, target, call.args[1])
        return call.func(*call.args, **call.kwargs)
    if packet is aten.set_:
        tensors = [arg for arg in call.args if isinstance(arg, torch.Tensor)]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise unsupported("set-with-grad", recording.span)  # torch has no derivative of `set_`
        tracked: Tracked | None = _after_set(recording, call)
        preserve_values(recording, target)
        if target.requires_grad:
            recording.note(EventKind.NEW_EDGE, target)
        replayed = _geometry_to_autograd(recording, target)
        result = call.func(*call.args, **call.kwargs)
        if target._base is not None and geometry_of(target) != replayed:
            recording.note(EventKind.VIEW_SET_TO_OTHER_GEOMETRY, target)
    else:  # `resize_`, `resize_as_`, `_resize_output_`: the other rows of STORAGE_SWAPS
        tracked = _resized(recording, call)
        result = call.func(*call.args, **call.kwargs) if tracked is None else target
    if tracked is not None:
        set_tracked(target, tracked)
        recording.note(EventKind.STORAGE_SWAP, target)
    return result


def _geometry_to_autograd(recording: Recording, tensor: Any) -> Geometry | None:
    """Return the geometry with which autograd regenerates the `grad_fn` of a view of a fake tensor.

    The view's chain shows it until the first swap, which leaves it unchanged if it is not noted.
    """
    is_swapped = recording.events.has(EventKind.STORAGE_SWAP, tensor)
    return geometry_of(tensor) if is_swapped else replayed_geometry(tensor)


def set_from_tensor(recording: Recording, func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Rewrite `set_` to a storage as `set_` to a tensor on it: a program has no storages."""
    if len(args) < 2 or not isinstance(args[1], torch.UntypedStorage):
        return func, args
    target, storage, *geometry = args
    source = tensor_on(recording, storage)
    if not geometry:  # all of the storage, in one dimension
        geometry = [0, [storage.nbytes() // target.element_size()], [1]]
    return aten.set_.source_Tensor_storage_offset, (target, source, *geometry)


def record_storage_resize(recording: Recording, tensor: Any, size: Any) -> None:
    """Record a resize of a tensor's storage in bytes; its contents are lost, or written next."""
    storage = recording.tracked(tensor).storage
    if storage.bytes_before is None:
        storage.bytes_before = _bytes_before(recording, storage)
    storage.bytes_after = size
    note_metadata_mutation(recording, storage, replace(recording.new_write(), is_counted=False))


def _bytes_before(recording: Recording, storage: Storage) -> int:
    """Return the size of the caller's storage (a fake one grows when an operator reads it); -1 if unknown."""
    arguments = (tensor for tensor in recording.seen_tensors() if id(tensor) in recording.originals)
    argument = next(
        (tensor for tensor in arguments if recording.tracked(tensor).storage is storage), storage.base_tensor
    )
    original = recording.originals.get(id(argument))
    if not isinstance(original, torch.Tensor) or type(original) is FakeTensor:
        return -1
    return int(original.untyped_storage().nbytes())


def record_data_assignment(recording: Recording, target: Any, source: Any) -> None:
    """Record `target.data = source` before it happens: the target moves to the source's storage."""
    if target.dtype is not source.dtype:
        raise unsupported("data-of-other-dtype", recording.span, source=source.dtype, target=target.dtype)
    if source.is_inference() and not target.is_inference():
        raise unsupported("data-of-inference-tensor", recording.span)
    if target.is_inference() and not source.is_inference() and not has_version_counter(target):
        recording.note(EventKind.INFERENCE_DATA, target)
    preserve_values(recording, target)
    if target.requires_grad:
        recording.note_hidden_change(target)
    node, source_tracked = recording.node_of(source), recording.tracked(source)
    is_seen_view = target._base is not None and target.requires_grad
    if is_seen_view and source_tracked.storage is recording.tracked(target).storage:
        raise unsupported("data-of-view", recording.span)
    mutation = replace(recording.new_write(), is_counted=False)
    note_metadata_mutation(recording, recording.tracked(target).storage, mutation)
    if may_be_leaf(target) and target.shape != source.shape:
        recording.note(EventKind.DATA_OF_OTHER_SIZES, target)
    set_tracked(
        target,
        Tracked(source_tracked.storage, source_tracked.chain, node, source_tracked.version),
    )
    recording.note(EventKind.STORAGE_SWAP, target)


def _after_set(recording: Recording, call: WritingCall) -> Tracked:
    """Return the target's state after `set_`."""
    target, *rest = call.args
    tracked = recording.tracked(target)
    note_metadata_mutation(recording, tracked.storage, recording.new_write(tracked.chain))
    if not rest:
        raise unsupported("foreign-storage", recording.span)
    source, *geometry = rest
    node, tracked = recording.node_of(source), recording.tracked(source)
    if not geometry:
        return Tracked(tracked.storage, tracked.chain, node, tracked.version)
    offset, size, *stride = geometry
    strides = list(stride[0]) if stride and stride[0] else _contiguous_strides(size)
    step = ViewStep(aten.as_strided.default, (list(size), strides, offset))
    chain = (*tracked.chain, step)
    return Tracked(tracked.storage, chain, recording.replay(tracked.storage, chain), tracked.storage.version)


def _contiguous_strides(size: Any) -> list[Any]:
    strides: list[Any] = []
    step: Any = 1
    for length in reversed(size):
        strides.insert(0, step)
        step = step * max(length, 1)
    return strides


def tensor_on(recording: Recording, storage: Any) -> Any:
    """Return a recorded tensor on the storage."""
    for tensor in recording.seen_tensors():
        if tensor.untyped_storage()._cdata == storage._cdata:
            return tensor
    raise unsupported("foreign-storage", recording.span)


def _resized(recording: Recording, call: WritingCall) -> Tracked | None:
    """Return a tensor's state after `resize_`; None if its sizes are unchanged."""
    target, new_size = call.args[0], call.args[1]
    size = list(new_size.shape) if isinstance(new_size, torch.Tensor) else list(new_size)
    if list(target.shape) == size:
        return None
    tracked, node = recording.tracked(target), recording.node_of(target)
    if prod(size) > target.numel() or not node.val.is_contiguous():
        raise unsupported("resize-to-more-elements", recording.span, operator=call.name)
    note_metadata_mutation(recording, tracked.storage, recording.new_write())
    preserve_values(recording, target)
    call.func(*call.args, **call.kwargs)
    chain = (*tracked.chain, ViewStep(aten.as_strided.default, (size, _contiguous_strides(size))))
    return Tracked(tracked.storage, chain, recording.replay(tracked.storage, chain), tracked.storage.version)
