"""Wrapper subclasses as the plain tensors inside them: what a graph computes on, and how it is wrapped again.

Invariant: graphs see inner tensors alone; autograd and the caller see wrappers alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from aotlens.ir.program import Node


@dataclass(frozen=True, slots=True)
class SubclassCreationMeta:
    """How one wrapper is made again around its inner tensors."""

    kind: type[Any]
    """The subclass, which has `__tensor_flatten__` and `__tensor_unflatten__`."""
    context: Any
    """What `__tensor_flatten__` gave beside the names."""
    size: tuple[Any, ...]
    """Outer sizes, symbols and nested ints included."""
    stride: tuple[Any, ...]

    @property
    def name(self) -> str:
        return self.kind.__name__


def is_plain(value: Any) -> bool:
    """Whether a subclass's metadata can be written out, and so has no symbols."""
    if isinstance(value, dict):
        return all(is_plain(item) for pair in value.items() for item in pair)
    if type(value) in (list, tuple):
        return all(is_plain(item) for item in value)
    return value is None or type(value) in (int, str, bool, float)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A part of a wrapper that is no tensor, such as a device mesh."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Wrapped:
    """The value of a wrapper: its inner values by attribute name."""

    meta: SubclassCreationMeta
    parts: tuple[tuple[str, "Node | Wrapped | Opaque"], ...]

    def leaves(self) -> Iterator[tuple[tuple[str, ...], Node]]:
        """Every inner node with the attributes that lead to it."""
        for name, part in self.parts:
            if isinstance(part, Wrapped):
                for path, node in part.leaves():
                    yield (name, *path), node
            elif isinstance(part, Node):
                yield (name,), part

    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for _, node in self.leaves())

    def map(self, change: Callable[[tuple[str, ...], Node], Node], path: tuple[str, ...] = ()) -> "Wrapped":
        """The same wrapper around other nodes."""
        parts: list[tuple[str, Any]] = []
        for name, part in self.parts:
            if isinstance(part, Wrapped):
                parts.append((name, part.map(change, (*path, name))))
            else:
                parts.append((name, change((*path, name), part) if isinstance(part, Node) else part))
        return Wrapped(self.meta, tuple(parts))


@dataclass(frozen=True, slots=True)
class UnwrapOperator:
    """An operator that gives the tensor under one attribute of a wrapper: `x.a`."""

    attribute: str

    @property
    def __name__(self) -> str:
        return f"getattr.{self.attribute}"

    def __call__(self, wrapper: Any) -> Any:
        return getattr(wrapper, self.attribute)


@dataclass(frozen=True, slots=True)
class WrapOperator:
    """An operator that makes a wrapper around tensors, given those, its sizes and its strides."""

    kind: type[Any]
    context: Any
    inner: tuple[str, ...]
    """The attributes that the tensors become."""
    others: tuple[tuple[str, Any], ...]
    """Attributes that are no tensors, and their values."""

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
    """Inner nodes of a wrapper with their paths; anything else as it is, with an empty path."""
    if isinstance(value, Wrapped):
        yield from value.leaves()
    else:
        yield (), value
