"""Whether two tensors hold the same values: one table of tolerances, and the error between them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from aotlens.torch_api.fake_kernels import is_pending_collective


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
"""Every other dtype must be equal to the bit."""
EXACT = Tolerance(0.0, 0.0)


def tolerances() -> str:
    """What `equal` means, in one line for the user."""
    rows = (
        f"{limit.relative:g} × size + {limit.absolute:g} in {str(dtype).removeprefix('torch.')}"
        for dtype, limit in TOLERANCES.items()
        if not dtype.is_complex
    )
    return ", ".join([*rows, "all other types to the bit"])


def inner_tensors(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What a wrapper subclass holds, by attribute name; a part that is no tensor is left out."""
    for name in tensor.__tensor_flatten__()[0]:  # type: ignore[attr-defined]
        inner = getattr(tensor, name)
        if isinstance(inner, Tensor):
            yield name, inner


def is_wrapper(tensor: Tensor) -> bool:
    return hasattr(tensor, "__tensor_flatten__")


def copied(tensor: Tensor) -> Tensor:
    """The values now, apart from every later change; a wrapper without `clone` is rebuilt of copied parts."""
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        try:
            return tensor.detach().clone()
        except NotImplementedError:
            if not is_wrapper(tensor):
                raise
        names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        parts = {name: getattr(tensor, name) for name in names}
        inner = {name: copied(part) if isinstance(part, Tensor) else part for name, part in parts.items()}
        made: Tensor = type(tensor).__tensor_unflatten__(  # type: ignore[attr-defined]
            inner, context, tensor.size(), tensor.stride()
        )
        return made


def is_users_wrapper(tensor: Tensor) -> bool:
    """Whether the tensor is a wrapper around others that its user sees."""
    return hasattr(tensor, "__tensor_flatten__") and not is_pending_collective(tensor)


def class_name(tensor: Tensor) -> str:
    """The tensor's class; a collective's pending result counts as the tensor that it gives when used."""
    return "Tensor" if is_pending_collective(tensor) else type(tensor).__name__


def metadata(tensor: Tensor) -> str:
    """How a wrapper subclass describes itself and what it holds; empty for a plain tensor."""
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
    """Within it floats of every type are compared as the coarsest of these, in which they were computed."""
    limits = [TOLERANCES.get(dtype, EXACT) for dtype in dtypes]
    token = _coarsest.set(max(limits, key=lambda limit: limit.relative, default=EXACT))
    try:
        yield
    finally:
        _coarsest.reset(token)


def close(actual: Tensor, expected: Tensor, scale: float = 1.0) -> bool:
    """Whether every element is within tolerance; NaN equals NaN and infinities their own sign.

    `scale` is the size of the numbers that cancelled out on the way here; it stretches the absolute part.
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
    """Whether NaN and infinities stand at the same elements; `error_between` does not count them."""
    if shape_of(actual) != shape_of(expected):
        return False
    other, true = as_dense_double(actual), as_dense_double(expected)
    return torch.equal(torch.isnan(other), torch.isnan(true)) and torch.equal(
        torch.isinf(other), torch.isinf(true)
    )


def same_values(left: Tensor, right: Tensor) -> bool:
    """Whether both have the same shape and every element is equal to the bit, or NaN in both."""
    if shape_of(left) != shape_of(right) or left.layout != right.layout:
        return False
    if left.is_meta:
        return True
    if is_wrapper(left) or is_wrapper(right):
        return _same_inner(left, right)
    first, second = _dense(left.detach()), _dense(right.detach())
    return bool(torch.eq(first, second).logical_or(first.isnan() & second.isnan()).all())


def _same_inner(left: Tensor, right: Tensor) -> bool:
    """The same for wrappers, part by part: their own operators need not know `detach` and the like."""
    if not (is_wrapper(left) and is_wrapper(right)):
        return False
    first, second = dict(inner_tensors(left)), dict(inner_tensors(right))
    return first.keys() == second.keys() and all(same_values(first[name], second[name]) for name in first)


def error_between(actual: Tensor, expected: Tensor) -> float:
    """Largest absolute error, where both are finite."""
    if expected.is_meta or expected.numel() == 0 or shape_of(actual) != shape_of(expected):
        return 0.0
    return float(
        torch.nan_to_num((as_dense_double(actual) - as_dense_double(expected)).abs(), 0.0, 0.0).max()
    )


def is_leaf(tensor: Tensor) -> bool:
    """False for a view whose place in the autograd graph is unknown, since its base was written to."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def shape_of(tensor: Tensor) -> tuple[object, ...]:
    """The sizes; a ragged size, whose symbol is another for every tensor, as `ragged`."""
    return tuple(
        "ragged" if tensor.is_nested and not isinstance(size, int) else size for size in tensor.shape
    )


def as_dense_double(tensor: Tensor) -> Tensor:
    """The values as a dense tensor in double precision."""
    dense = _dense(tensor)
    return dense.to(torch.complex128 if dense.is_complex() else torch.float64)


def preview_values(tensor: Tensor) -> str:
    """The first few values, for a message."""
    flat = _dense(tensor).flatten()
    words = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in flat[:4].tolist()]
    return f"[{', '.join(words)}{', ...' if flat.numel() > 4 else ''}]"


def _real(tensor: Tensor) -> Tensor:
    """Complex numbers as pairs, floats in double precision, the rest as it is."""
    dense = _dense(tensor)
    if dense.is_complex():
        return torch.view_as_real(as_dense_double(tensor))
    return as_dense_double(tensor) if dense.is_floating_point() else dense


def _marked(values: Tensor, ordinary: Tensor) -> Tensor:
    """What stands where a value is not finite, NaN as 0 and infinities as themselves."""
    return torch.where(ordinary, 0.0, torch.nan_to_num(values, nan=0.0, posinf=1.0, neginf=-1.0))


def _dense(tensor: Tensor) -> Tensor:
    if is_wrapper(tensor):
        parts = [_dense(inner).flatten() for _, inner in inner_tensors(tensor)]
        # Quantised wrappers hold parts of several types, some of which torch does not promote.
        is_mixed = len({part.dtype for part in parts}) > 1
        return torch.cat([as_dense_double(part) for part in parts] if is_mixed else parts)
    return tensor.to_dense() if tensor.layout != torch.strided else tensor.resolve_conj().resolve_neg()
