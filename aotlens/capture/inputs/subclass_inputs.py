"""Wrapper subclasses among the flat inputs.

Invariant: every inner tensor becomes a graph input, named as the user would (`x.a`); the function's argument
is a wrapper around them that is a leaf exactly when the caller's is.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.inputs.synthetic_bases import copy_tensor_class
from aotlens.capture.records import CapturedInput, OpenInput
from aotlens.capture.storage import Storage, find_tracked, ranges_overlap, version_of
from aotlens.capture.subclasses import Path, inner_tensors, is_fake, is_wrapper, rebuild
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.ir.slots import FlatInput
from aotlens.ir.subclasses import is_plain
from aotlens.torch_api.dynamo.state import specialise_sizes
from aotlens.torch_api.fake.tensors import FakeTensorMode, to_fake
from aotlens.torch_api.modes import below_views
from aotlens.unsupported import unsupported


class MakeNonLeafWrapper(torch.autograd.Function):
    """Gives an existing wrapper a grad_fn, so that it is not a leaf."""

    @staticmethod
    def forward(ctx: Any, leaf: Any, make: Callable[[], Any]) -> Any:
        return make()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


def wrapper_input(recording: Recording, value: Any, slot: FlatInput, name: str, dynamic: bool) -> OpenInput:
    """Capture one wrapper; call inside the recorder's fake mode."""
    fake = value if is_fake(value, recording.fake_mode) else fake_wrapper(recording.fake_mode, value, dynamic)

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
    storage = Storage(node, argument)
    recording.track(argument, storage)
    return CapturedInput(
        slot=slot,
        argument=argument,
        node=node,
        fake=fake,
        leaf=leaf,
        storage=storage,
        grad_fn=argument.grad_fn,
        version=version_of(argument),
        is_leaf=value.is_leaf,
        wrapped=wrapped,
    )


def fake_wrapper(mode: FakeTensorMode, value: Any, dynamic: bool) -> Any:
    """Return a fake wrapper; Dynamo recompiles for dynamic sizes that are static here."""
    if dynamic and _sizes_may_vary(value):
        return to_fake(mode, value, static_shapes=False)
    varying = specialise_sizes(mode, value, jagged=has_ragged_size(value))
    fake = to_fake(mode, value, static_shapes=True)
    for name, inner in varying.items():
        setattr(fake, name, inner)
    return fake


def _sizes_may_vary(value: Any) -> bool:
    """Return True if sizes can be symbols: the inner tensors have all of them, and guards cover the rest.

    Sizes that only the wrapper knows (the global sizes around a shard) are not graph inputs. An object in the
    subclass's metadata is compared as a whole, including its sizes.
    """
    if has_ragged_size(value) or not is_plain(value.__tensor_flatten__()[1]):
        return False
    carried = {size for _, inner in inner_tensors(value) for size in inner.shape}
    return carried.issuperset(size for size in value.shape if size > 1)


def has_ragged_size(value: Any) -> bool:
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
        return MakeNonLeafWrapper.apply(leaf, lambda: argument), leaf


def _untracked(path: Path, inner: Any) -> tuple[Any, Any]:
    with torch.no_grad(), below_views():
        return None, inner.detach()


def storage_identities(fake: Any) -> Iterator[int]:
    """Yield the storages of a flat input; a wrapper may have several."""
    if is_wrapper(fake):
        for _, inner in inner_tensors(fake):
            yield from storage_identities(inner)
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


def share_inner(index: int, captured_input: OpenInput, others: list[tuple[int, Any]]) -> None:
    """Set the inputs of each inner storage and of the wrapper's own, including overlaps within it."""
    assert captured_input.storage is not None  # created by wrapper_input
    captured_input.storage.inputs = (index,)
    initial_inner = dict(inner_tensors(captured_input.fake))
    for path, tensor in inner_tensors(captured_input.argument):
        siblings = [(index, inner) for other_path, inner in initial_inner.items() if other_path != path]
        shared = [other for other, fake in (*others, *siblings) if overlaps(initial_inner[path], fake)]
        tracked = find_tracked(tensor)
        assert tracked is not None  # tracked by wrapper_input
        storage = tracked.storage
        storage.inputs, storage.wrapper_name = (index, *shared), captured_input.slot.name
