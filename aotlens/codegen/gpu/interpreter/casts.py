"""Convert and multiply numbers of narrow types as the hardware does.

The interpreter stores bf16 and fp8 as their bits.
"""

from typing import Any

import numpy as np
import torch

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}
"""By Triton's name."""
_SIGNED: dict[int, Any] = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
"""Integers as wide as a float, which torch and numpy can exchange."""
_NATIVE = ("fp16", "fp32", "fp64")
"""Types in which numpy can compute."""


def converting(original: Any) -> Any:
    """Replace the interpreter's conversion, which is still used for types that torch lacks."""

    def convert(values: Any, source: Any, destination: Any, rounding: Any) -> Any:
        if source.name not in DTYPES or destination.name not in DTYPES:
            return original(values, source, destination, rounding)
        return _bits(_torch(values, source).to(DTYPES[destination.name]), destination).reshape(values.shape)

    return convert


def _torch(values: Any, source: Any) -> torch.Tensor:
    wide = np.ascontiguousarray(values).view(f"u{source.primitive_bitwidth // 8}")
    if source.primitive_bitwidth > 8:  # torch lacks the wider unsigned integers
        wide = wide.view(f"i{source.primitive_bitwidth // 8}")
    return torch.from_numpy(wide.copy()).view(DTYPES[source.name])


def _bits(values: torch.Tensor, destination: Any) -> Any:
    width = destination.primitive_bitwidth
    return values.contiguous().view(_SIGNED[width]).numpy().view(f"u{width // 8}")


def multiplying(handle: Any, convert: Any, fp32: Any) -> Any:
    """Replace `create_dot`: factors in single precision, the sum in the accumulator's type."""

    def numbers(factor: Any) -> Any:
        dtype = factor.dtype.scalar
        if dtype.name in _NATIVE or dtype.name not in DTYPES:
            return factor.data.astype(np.float32) if dtype.name == "fp16" else factor.data
        return convert(factor.data, dtype, fp32, None).view(np.float32)

    def dot(self: Any, a: Any, b: Any, accumulator: Any, *precision: Any) -> Any:
        dtype = accumulator.data.dtype
        # numpy would round each partial sum to fp16, the hardware only rounds the last one
        sum_dtype = np.float32 if dtype == np.float16 else dtype
        product = np.matmul(numbers(a), numbers(b), dtype=sum_dtype)
        return handle((product + accumulator.data).astype(dtype), accumulator.dtype.scalar)

    return dot


def converting_float_arguments(original: Any, handle: Any, language: Any) -> Any:
    """Replace the conversion of a launch's arguments: a float becomes a tensor too, which kernels cast.

    In f64, which is Python's own precision.
    """

    def convert(argument: Any) -> Any:
        if isinstance(argument, float):
            number = handle(np.array([argument], np.float64), language.float64)
            return language.tensor(number, language.float64)
        return original(argument)

    return convert
