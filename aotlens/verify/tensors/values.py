"""Decide whether two tensors hold the same values: one table of tolerances, and the error between them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from aotlens.torch_api.fake.kernels import is_pending_collective


@dataclass(frozen=True, slots=True)
class Tolerance:
    """|compiled - eager| <= absolute + relative * max(|eager|, mean |eager| of the tensor)."""

    relative: float
    absolute: float


TOLERANCES: dict[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(1e-9, 1e-11),
    torch.complex128: Tolerance(1e-9, 1e-11),
    torch.float32: Tolerance(1e-4, 1e-6),
    torch.complex64: Tolerance(1e-4, 1e-6),
    torch.float16: Tolerance(5e-3, 1e-4),
    torch.bfloat16: Tolerance(3e-2, 1e-3),
}
"""Every other dtype must be equal bit by bit."""
EXACT = Tolerance(0.0, 0.0)


def tolerances() -> str:
    """Return in one line what `equal` means."""
    rows = (
        f"{limit.relative:g} × size + {limit.absolute:g} in {str(dtype).removeprefix('torch.')}"
        for dtype, limit in TOLERANCES.items()
        if not dtype.is_complex
    )
    return ", ".join([*rows, "all other types to the bit"])


def inner_tensors(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the inner tensors of a wrapper subclass by attribute name."""
    for name in tensor.__tensor_flatten__()[0]:  # type: ignore[attr-defined]
        inner = getattr(tensor, name)
        if isinstance(inner, Tensor):
            yield name, inner


def is_wrapper(tensor: Tensor) -> bool:
    return hasattr(tensor, "__tensor_flatten__")


def copied(tensor: Tensor) -> Tensor:
    """Return a copy of the current values; a wrapper without `clone` is rebuilt from copied inner tensors."""
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        try:
            return tensor.detach().clone()
        except NotImplementedError:
            if not is_wrapper(tensor):
                raise
        names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        parts = {name: getattr(tensor, name) for name in names}
        inner = {name: copied(part) if isinstance(part, Tensor) else part for name, part in parts.items()}
        wrapper: Tensor = type(tensor).__tensor_unflatten__(  # type: ignore[attr-defined]
            inner, context, tensor.size(), tensor.stride()
        )
        return wrapper


def is_users_wrapper(tensor: Tensor) -> bool:
    """Return True if the tensor is a wrapper that its user sees."""
    return hasattr(tensor, "__tensor_flatten__") and not is_pending_collective(tensor)


def class_name(tensor: Tensor) -> str:
    """Return the tensor's class; a collective's pending result counts as the tensor that it will be."""
    return "Tensor" if is_pending_collective(tensor) else type(tensor).__name__


def metadata(tensor: Tensor) -> str:
    """Return the attributes of a wrapper subclass and of its inner tensors; empty for a plain tensor."""
    if not is_users_wrapper(tensor):
        return ""
    own = tensor.__tensor_flatten__()[1]  # type: ignore[attr-defined]
    inside = (
        f"{name}: {class_name(inner)}{list(inner.shape)} {metadata(inner)}"
        for name, inner in inner_tensors(tensor)
    )
    return f"{own} around {', '.join(inside)}"


_coarsest: ContextVar[Tolerance] = ContextVar("coarsest", default=EXACT)


@contextmanager
def computed_in(dtypes: Iterable[torch.dtype]) -> Iterator[None]:
    """Compare floats of every dtype, within the block, with the tolerance of the coarsest of these dtypes."""
    limits = [TOLERANCES.get(dtype, EXACT) for dtype in dtypes]
    token = _coarsest.set(max(limits, key=lambda limit: limit.relative, default=EXACT))
    try:
        yield
    finally:
        _coarsest.reset(token)


def close(actual: Tensor, expected: Tensor, scale: float = 1.0) -> bool:
    """Return True if every element is within tolerance; NaN equals NaN, infinities must have equal signs.

    `scale` is the size of the numbers that cancelled out in the computation; it scales the absolute
    tolerance.
    """
    if expected.is_meta or expected.numel() == 0:
        return True
    limit = TOLERANCES.get(expected.dtype, EXACT)
    other, true = _real(actual), _real(expected)
    if limit is EXACT:
        return torch.equal(other, true)
    limit = max(limit, _coarsest.get(), key=lambda limit: limit.relative)
    ordinary = torch.isfinite(true) & torch.isfinite(other)
    if not torch.equal(_marked(other, ordinary), _marked(true, ordinary)):
        return False
    size = torch.where(ordinary, true.abs(), 0.0)
    allowed = limit.absolute * scale + limit.relative * torch.maximum(size, size.mean())
    return bool(((other - true).abs() <= allowed)[ordinary].all())


def same_non_finite(actual: Tensor, expected: Tensor) -> bool:
    """Return True if the same elements are NaN or infinite, with the same sign.

    `error_between` skips these elements.
    """
    if shape_of(actual) != shape_of(expected):
        return False
    other, true = as_dense_double(actual), as_dense_double(expected)
    infinities, expected_infinities = (torch.where(torch.isinf(each), each, 0.0) for each in (other, true))
    return torch.equal(torch.isnan(other), torch.isnan(true)) and torch.equal(infinities, expected_infinities)


def same_values(left: Tensor, right: Tensor) -> bool:
    """Return True if the shapes are equal and every element is equal, or NaN in both."""
    if shape_of(left) != shape_of(right) or left.layout != right.layout:
        return False
    if left.is_meta:
        return True
    if is_wrapper(left) or is_wrapper(right):
        return _same_inner(left, right)
    first, second = _dense(left.detach()), _dense(right.detach())
    return bool(torch.eq(first, second).logical_or(first.isnan() & second.isnan()).all())


def _same_inner(left: Tensor, right: Tensor) -> bool:
    """Compare wrappers by their inner tensors, because their own operators may lack `detach` and others."""
    if not (is_wrapper(left) and is_wrapper(right)):
        return False
    first, second = dict(inner_tensors(left)), dict(inner_tensors(right))
    return first.keys() == second.keys() and all(same_values(first[name], second[name]) for name in first)


def error_between(actual: Tensor, expected: Tensor) -> float:
    """Return the largest absolute error among elements that are finite in both."""
    if expected.is_meta or expected.numel() == 0 or shape_of(actual) != shape_of(expected):
        return 0.0
    return float(
        torch.nan_to_num((as_dense_double(actual) - as_dense_double(expected)).abs(), 0.0, 0.0).max()
    )


def is_leaf(tensor: Tensor) -> bool:
    """Return False for a view whose base was mutated, since its position in the autograd graph is unknown."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def shape_of(tensor: Tensor) -> tuple[object, ...]:
    """Return the sizes, with `ragged` for a ragged size, whose symbol differs for every tensor."""
    return tuple(
        "ragged" if tensor.is_nested and not isinstance(size, int) else size for size in tensor.shape
    )


def as_dense_double(tensor: Tensor) -> Tensor:
    """Return the values as a dense tensor in double precision."""
    dense = _dense(tensor)
    return dense.to(torch.complex128 if dense.is_complex() else torch.float64)


def preview_values(tensor: Tensor) -> str:
    """Return the first few values for a message."""
    flat = _dense(tensor).flatten()
    words = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in flat[:4].tolist()]
    return f"[{', '.join(words)}{', ...' if flat.numel() > 4 else ''}]"


def _real(tensor: Tensor) -> Tensor:
    """Return complex numbers as pairs, floats in double precision, other values unchanged."""
    dense = _dense(tensor)
    if dense.is_complex():
        return torch.view_as_real(as_dense_double(tensor))
    return as_dense_double(tensor) if dense.is_floating_point() else dense


def _marked(values: Tensor, ordinary: Tensor) -> Tensor:
    """Return the non-finite values, with NaN as 0, infinities as themselves, and 0 for finite ones."""
    return torch.where(ordinary, 0.0, torch.nan_to_num(values, nan=0.0, posinf=1.0, neginf=-1.0))


def _dense(tensor: Tensor) -> Tensor:
    if is_wrapper(tensor):
        parts = [_dense(inner).flatten() for _, inner in inner_tensors(tensor)]
        # Inner tensors of quantised wrappers have several dtypes, and torch cannot promote some of them.
        is_mixed = len({part.dtype for part in parts}) > 1
        return torch.cat([as_dense_double(part) for part in parts] if is_mixed else parts)
    return tensor.to_dense() if tensor.layout != torch.strided else tensor.resolve_conj().resolve_neg()
