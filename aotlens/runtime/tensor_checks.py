"""What a guard asks of one tensor, as text: its shape, its kind, and how its elements lie in memory."""

from typing import Any

import torch


def other_shape(name: str, fake: Any) -> str:
    """The condition that a tensor has another shape, as far as its sizes are known."""
    if not any(isinstance(size, torch.SymInt) for size in fake.shape):
        return f"{name}.shape != {tuple(fake.shape)}"
    known = [(dim, size) for dim, size in enumerate(fake.shape) if not isinstance(size, torch.SymInt)]
    return " or ".join(
        [f"{name}.dim() != {fake.dim()}", *(f"{name}.size({dim}) != {size}" for dim, size in known)]
    )


def not_plain(name: str) -> str:
    """The condition that it is no tensor, or one that wraps others, which the graph was not made for."""
    return f"(not isinstance({name}, torch.Tensor) or hasattr({name}, '__tensor_flatten__'))"


def other_strides(name: str, fake: Any) -> str:
    """The condition that a tensor's elements lie otherwise: whether `reshape` copies depends on it."""
    if fake.is_contiguous():
        return f"not {name}.is_contiguous()"
    if any(isinstance(step, torch.SymInt) for step in fake.stride()):
        return f"{name}.is_contiguous()"
    return f"{name}.stride() != {tuple(fake.stride())}"


def symbolic_strides(fake: Any) -> list[tuple[int, Any]]:
    """Dimension and stride of a tensor whose elements do not simply follow one another, as symbols.

    Those come first that are a symbol of their own, since others are told in terms of them.
    """
    strides = fake.stride()
    if fake.is_contiguous() or not any(isinstance(step, torch.SymInt) for step in strides):
        return []
    found = [(dim, step) for dim, step in enumerate(strides) if not _is_one(fake.shape[dim])]
    return sorted(found, key=lambda given: not _is_symbol(given[1]))


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _is_symbol(step: Any) -> bool:
    return isinstance(step, torch.SymInt) and bool(step.node.expr.is_symbol)
