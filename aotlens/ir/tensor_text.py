"""Tensors as text: short dtypes, types, the record of a tensor, and constants as Python expressions."""

from typing import Any

import torch

from aotlens.model.report import Dimension, Tensor

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
    """Return a size as a number, or as its symbol's text."""
    return int(size) if isinstance(size, int) else str(size)


def describe_tensor(tensor: Any) -> Tensor:
    """Return the report's record of a fake or real tensor."""
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
    """Return elements times element size; for symbolic sizes, of the example that was traced."""
    count = tensor.numel()
    if isinstance(count, torch.SymInt):
        hint = count.node.hint
        if hint is None:
            return None
        count = int(hint)
    return int(count) * int(tensor.element_size())


def type_text(val: Any) -> str:
    """Return `f32[8, 16]` or `TwoTensor f32[8, 16]`; an empty string for what is no tensor."""
    if isinstance(val, torch.Tensor):
        kind = f"{type(val).__name__} " if hasattr(val, "__tensor_flatten__") else ""
        return f"{kind}{short_dtype(val.dtype)}[{', '.join(str(dimension(size)) for size in val.shape)}]"
    if isinstance(val, (list, tuple)):
        return ", ".join(type_text(item) for item in val)
    return ""


def constant_text(tensor: torch.Tensor, limit: int = 4096) -> str | None:
    """Return a small CPU tensor as an expression that recreates it bit for bit; else None.

    A sparse tensor, or one whose storage was resized to zero, has none.  Neither has one on foreign memory (a
    NumPy array), since its owner may write to it.
    """
    if tensor.numel() > limit or tensor.device.type != "cpu" or tensor.is_complex():
        return None
    if tensor.layout is not torch.strided:
        return None
    if not tensor.numel():
        return f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype})"
    storage = tensor.untyped_storage()
    if not storage.nbytes() or not storage.resizable():
        return None
    values = tensor.tolist()
    text = repr(values).replace("nan", "float('nan')").replace("inf", "float('inf')")
    return f"torch.tensor({text}, dtype={tensor.dtype})"
