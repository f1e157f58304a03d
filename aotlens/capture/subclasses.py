"""Wrapper subclasses in a recording.

Invariant: the recorder returns an operator on wrappers to the subclass and records what the subclass does
with its inner tensors; a wrapper also has a storage and a view chain of its own, so that its aliases are
known.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.builder import Builder
from aotlens.capture.graph import Recording
from aotlens.capture.mutations.in_place import WritingCall
from aotlens.capture.operators import Kind, describe
from aotlens.capture.storage import Storage, Tracked, find_tracked, has_symbols, set_tracked
from aotlens.capture.views import ViewStep
from aotlens.ir.program import Node
from aotlens.ir.subclasses import Opaque, SubclassCreationMeta, Value, Wrapped
from aotlens.torch_api.fake.tensors import FakeTensor, FakeTensorMode
from aotlens.unsupported import unsupported

Path = tuple[str, ...]
MakeInner = Callable[[Path, Any], tuple[Node, Any]]
"""Returns the node and the replacement of the inner tensor at a path."""


def is_wrapper(value: Any) -> bool:
    """Return True for a traceable wrapper; cheap enough for every argument."""
    return type(value) is not FakeTensor and hasattr(type(value), "__tensor_flatten__")


def has_wrapper(types: Any) -> bool:
    """Return True if one of an operator's argument types is a wrapper."""
    return any(kind is not FakeTensor and hasattr(kind, "__tensor_flatten__") for kind in types)


def _describe_wrapper(tensor: Any) -> SubclassCreationMeta:
    return SubclassCreationMeta(
        type(tensor), tensor.__tensor_flatten__()[1], tuple(tensor.shape), tuple(tensor.stride())
    )


def inner_tensors(tensor: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the inner tensors with the attributes that lead to them; a plain tensor yields itself."""
    if not is_wrapper(tensor):
        yield path, tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        inner = getattr(tensor, name)
        if isinstance(inner, torch.Tensor):
            yield from inner_tensors(inner, (*path, name))


def is_fake(tensor: Any, mode: FakeTensorMode) -> bool:
    """Return True for a fake tensor of a mode, and for a wrapper that contains one.

    A script may itself run on fake tensors, which are those of another mode.
    """
    return any(type(inner) is FakeTensor and inner.fake_mode is mode for _, inner in inner_tensors(tensor))


def inner_tensor_at(value: Any, path: Path) -> Any:
    """Return the inner tensor at a path of attributes."""
    for name in path:
        value = getattr(value, name)
    return value


def rebuild(tensor: Any, make_inner: MakeInner, path: Path = ()) -> tuple[Wrapped, Any]:
    """Wrap other inner tensors in a wrapper like this one; return its record and the wrapper."""
    meta = _describe_wrapper(tensor)
    parts: list[tuple[str, Any]] = []
    inner: dict[str, Any] = {}
    value: Any
    for name in tensor.__tensor_flatten__()[0]:
        part = getattr(tensor, name)
        if is_wrapper(part):
            value, inner[name] = rebuild(part, make_inner, (*path, name))
        elif isinstance(part, torch.Tensor):
            value, inner[name] = make_inner((*path, name), part)
        else:
            value, inner[name] = Opaque(part), part
        parts.append((name, value))
    if path:
        within = [part for part in inner.values() if isinstance(part, torch.Tensor)]
        size, stride = _geometry_within(tensor, within)
        meta = replace(meta, size=size, stride=stride)
    made = meta.kind.__tensor_unflatten__(inner, meta.context, torch.Size(meta.size), meta.stride)
    return Wrapped(meta, tuple(parts)), made


def _geometry_within(tensor: Any, inner: list[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return a nested wrapper's sizes and strides; torch gives them as numbers even for symbolic sizes.

    Raises:
        UnsupportedError: its inner tensors have symbolic sizes that differ.
    """
    numbers = (tuple(tensor.shape), tuple(tensor.stride()))
    symbolic = [part for part in inner if has_symbols(part)]
    if not symbolic or has_symbols(tensor):
        return numbers
    for part in symbolic:
        geometry = tuple(part.shape), tuple(part.stride())
        if tuple(tuple(map(_example_size, sizes)) for sizes in geometry) == numbers:
            return geometry
    raise unsupported("inner-tensor-sizes", type=type(tensor).__name__)


def _example_size(size: Any) -> Any:
    """Return a size's example value without adding a guard."""
    return size.node.hint if isinstance(size, torch.SymInt) and size.node.is_symbolic() else size


def value_of(recording: Builder, tensor: Any) -> Value:
    """Return the current value of a tensor or wrapper."""
    if not is_wrapper(tensor):
        return recording.node_of(tensor)
    parts: list[tuple[str, Any]] = []
    for name in tensor.__tensor_flatten__()[0]:
        part = getattr(tensor, name)
        parts.append((name, value_of(recording, part) if isinstance(part, torch.Tensor) else Opaque(part)))
    return Wrapped(_describe_wrapper(tensor), tuple(parts))


def value_like(recording: Builder, tensor: Any, like: Wrapped) -> Wrapped:
    """Return a wrapper's current value with its initial attributes: a subclass may cache others."""

    def current(path: Path, _: Node) -> Node:
        return recording.node_of(inner_tensor_at(tensor, path))

    return like.map(current)


def record_wrapper_output(recording: Recording, call: WritingCall, result: Any) -> None:
    """Record an operator's results and writes on wrappers: views, new values, mutations."""
    operator, source = describe(call.func), call.args[0] if call.args else None
    if operator.kind is Kind.MUTATION:
        for target in call.targets:
            if is_wrapper(target):
                recording.tracked(target).storage.writes += (recording.new_write(),)
    if operator.kind is Kind.METADATA_MUTATION and is_wrapper(source):
        recording.tracked(source).storage.metadata_mutations += (recording.new_write(),)
    several = isinstance(result, (list, tuple))
    for index, made in enumerate(result if several else (result,)):
        if not is_wrapper(made) or find_tracked(made) is not None:
            continue
        known = recording.tracked(source) if is_wrapper(source) else None
        if (
            known is None
            or operator.kind not in (Kind.VIEW, Kind.DETACH)
            or not _share_storages(source, made)
        ):
            recording.tracked(made)
            continue
        chain = known.chain
        if operator.kind is Kind.VIEW:
            result_index = index if several else None
            step = ViewStep.in_current_modes(call.func, call.args[1:], call.kwargs, result=result_index)
            chain = (*chain, step)
        set_tracked(made, Tracked(known.storage, chain, known.node, known.version))


def _share_storages(source: Any, made: Any) -> bool:
    """Return True if both have the same inner storages: a subclass may return a copy for a view."""
    storages = {id(storage) for storage in inner_storages(source)}
    return all(id(storage) in storages for storage in inner_storages(made))


def inner_storages(tensor: Any) -> Iterator[Storage]:
    for _, inner in inner_tensors(tensor):
        tracked = find_tracked(inner)
        if tracked is not None:
            yield tracked.storage
