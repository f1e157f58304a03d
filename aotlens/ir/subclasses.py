"""Wrapper subclasses as their inner tensors: what a graph computes on, and how it is wrapped.

Invariant: graphs see inner tensors only; autograd and the caller see wrappers only.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from aotlens.ir.program import Node


@dataclass(frozen=True, slots=True)
class SubclassCreationMeta:
    """How to wrap inner tensors as one subclass instance."""

    kind: type[Any]
    """The subclass, which has `__tensor_flatten__` and `__tensor_unflatten__`."""
    context: Any
    """The context that `__tensor_flatten__` returned."""
    size: tuple[Any, ...]
    """Outer sizes, including symbols and nested ints."""
    stride: tuple[Any, ...]

    @property
    def name(self) -> str:
        return self.kind.__name__


def is_plain(value: Any) -> bool:
    """Return True if a subclass's metadata can be written as a literal, so has no symbols."""
    if isinstance(value, dict):
        return all(is_plain(item) for pair in value.items() for item in pair)
    if type(value) in (list, tuple):
        return all(is_plain(item) for item in value)
    return value is None or type(value) in (int, str, bool, float)


@dataclass(frozen=True, slots=True)
class Opaque:
    """An attribute of a wrapper that is no tensor, such as a device mesh."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Wrapped:
    """The value of a wrapper: its inner values by attribute name."""

    meta: SubclassCreationMeta
    parts: tuple[tuple[str, "Node | Wrapped | Opaque"], ...]

    def leaves(self) -> Iterator[tuple[tuple[str, ...], Node]]:
        """Yield every inner node with the attributes that lead to it."""
        for name, part in self.parts:
            if isinstance(part, Wrapped):
                for path, node in part.leaves():
                    yield (name, *path), node
            elif isinstance(part, Node):
                yield (name,), part

    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for _, node in self.leaves())

    def map(self, change: Callable[[tuple[str, ...], Node], Node], path: tuple[str, ...] = ()) -> "Wrapped":
        """Return the same wrapper around other nodes."""
        parts: list[tuple[str, Any]] = []
        for name, part in self.parts:
            if isinstance(part, Wrapped):
                parts.append((name, part.map(change, (*path, name))))
            else:
                parts.append((name, change((*path, name), part) if isinstance(part, Node) else part))
        return Wrapped(self.meta, tuple(parts))


@dataclass(frozen=True, slots=True)
class UnwrapOperator:
    """An operator that returns the tensor at one attribute of a wrapper: `x.a`."""

    attribute: str

    @property
    def __name__(self) -> str:
        return f"getattr.{self.attribute}"

    def __call__(self, wrapper: Any) -> Any:
        return getattr(wrapper, self.attribute)


@dataclass(frozen=True, slots=True)
class WrapOperator:
    """An operator that wraps inner tensors, given their outer sizes and strides."""

    kind: type[Any]
    context: Any
    inner: tuple[str, ...]
    """The attributes of the inner tensors."""
    others: tuple[tuple[str, Any], ...]
    """Attributes that are no tensors, with their values."""

    @property
    def __name__(self) -> str:
        return self.kind.__name__

    def __call__(self, inner: Any, size: Any, stride: Any) -> Any:
        parts = {**dict(zip(self.inner, inner, strict=True)), **dict(self.others)}
        size = size if None in size else torch.Size(size)
        return self.kind.__tensor_unflatten__(parts, self.context, size, stride)


Value: TypeAlias = Node | Wrapped
"""The value of one tensor: a node, or a wrapper around nodes."""


def leaves_of(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the inner nodes of a wrapper with their paths; anything else as it is, with an empty path."""
    if isinstance(value, Wrapped):
        yield from value.leaves()
    else:
        yield (), value
