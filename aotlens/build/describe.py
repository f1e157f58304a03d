"""A tensor as the report shows it, and a node's origin as a site of the report."""

from typing import Any

import torch

from aotlens.ir.origin import Origin
from aotlens.model.report import Dimension, Site, Tensor
from aotlens.model.spans import text_of

SHORT_DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.complex32: "c32",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
}
"""torch's own short names; a dtype without one keeps its long name."""


def short_dtype(dtype: torch.dtype) -> str:
    return SHORT_DTYPES.get(dtype) or str(dtype).removeprefix("torch.")


def dimension(size: Any) -> Dimension:
    """A size as a number, or as the symbol's text."""
    return int(size) if isinstance(size, int) else str(size)


def describe_tensor(tensor: Any) -> Tensor:
    """What the report says of a (fake or real) tensor."""
    return Tensor(
        dtype=short_dtype(tensor.dtype),
        shape=tuple(dimension(size) for size in tensor.shape),
        stride=tuple(dimension(step) for step in tensor.stride()),
        device=str(tensor.device),
        requires_grad=bool(tensor.requires_grad),
        bytes=size_bytes(tensor),
        subclass=type(tensor).__name__ if hasattr(tensor, "__tensor_flatten__") else None,
    )


def size_bytes(tensor: Any) -> int | None:
    """Elements times element size; with a symbolic size, of the example that it was traced with."""
    count = tensor.numel()
    if isinstance(count, torch.SymInt):
        hint = count.node.hint
        if hint is None:
            return None
        count = int(hint)
    return int(count) * int(tensor.element_size())


def site_of(origin: Origin) -> Site | None:
    """Where an operator ran; None when the user has no line for it."""
    span = origin.location.innermost
    return None if span is None else Site(span, text_of(span), origin.op or None)
