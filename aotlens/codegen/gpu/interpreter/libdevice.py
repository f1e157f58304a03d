"""NVIDIA's device library in numpy and torch, one row per function that kernels call.

Triton's module for these functions is a stub, which the compiler replaces by the target's; the interpreter
would call the stub.
"""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import torch

Function = Callable[..., Any]


def _by_torch(function: Callable[..., torch.Tensor]) -> Function:
    """Wrap a torch function that numpy lacks."""

    def call(*arrays: Any) -> Any:
        return function(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)).numpy()

    return call


def _flag(function: Function) -> Function:
    """Wrap a predicate, which returns integers in the library."""
    return lambda x: function(x).astype(np.int32)


def _bits_set(x: Any) -> Any:
    unsigned = x.view(f"u{x.dtype.itemsize}")
    return np.array([int(value).bit_count() for value in unsigned.ravel()], np.int32).reshape(x.shape)


def _leading_zeros(x: Any) -> Any:
    unsigned, width = x.view(f"u{x.dtype.itemsize}"), x.dtype.itemsize * 8
    counts = [width - int(value).bit_length() for value in unsigned.ravel()]
    return np.array(counts, np.int32).reshape(x.shape)


def _away_from_zero(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


FUNCTIONS: dict[str, Function] = {
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinpi": lambda x: np.sin(np.pi * x),
    "cospi": lambda x: np.cos(np.pi * x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(np.asarray(10, x.dtype), x),
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "sqrt_rn": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rsqrt_rn": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "hypot": np.hypot,
    "pow": np.power,
    "powi": lambda x, n: np.power(x, n.astype(x.dtype)),
    "ldexp": np.ldexp,
    "ilogb": lambda x: np.frexp(x)[1] - 1,
    "fma": lambda x, y, z: x * y + z,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "round": _away_from_zero,
    "llrint": lambda x: np.rint(x).astype(np.int64),
    "llround": lambda x: _away_from_zero(x).astype(np.int64),
    "float2int_rn": lambda x: np.rint(x).astype(np.int32),
    "double2int_rn": lambda x: np.rint(x).astype(np.int32),
    "fabs": np.abs,
    "abs": np.abs,
    "llabs": np.abs,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "min": np.minimum,
    "max": np.maximum,
    "fmod": np.fmod,
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "add_rn": np.add,
    "mul_rn": np.multiply,
    "div_rn": np.divide,
    "fast_dividef": np.divide,
    "rcp_rn": lambda x: 1 / x,
    "isnan": _flag(np.isnan),
    "isinf": _flag(np.isinf),
    "finite": _flag(np.isfinite),
    "isfinite": _flag(np.isfinite),
    "signbit": _flag(np.signbit),
    "erf": _by_torch(torch.erf),
    "erfc": _by_torch(torch.erfc),
    "erfinv": _by_torch(torch.erfinv),
    "erfcinv": lambda x: _by_torch(torch.erfinv)(1 - x),
    "erfcx": _by_torch(torch.special.erfcx),
    "lgamma": _by_torch(torch.lgamma),
    "j0": _by_torch(torch.special.bessel_j0),
    "j1": _by_torch(torch.special.bessel_j1),
    "y0": _by_torch(torch.special.bessel_y0),
    "y1": _by_torch(torch.special.bessel_y1),
    "cyl_bessel_i0": _by_torch(torch.special.i0),
    "cyl_bessel_i1": _by_torch(torch.special.i1),
    "normcdf": _by_torch(torch.special.ndtr),
    "normcdfinv": _by_torch(torch.special.ndtri),
    "popc": _bits_set,
    "popcll": _bits_set,
    "clz": _leading_zeros,
    "clzll": _leading_zeros,
}
"""By name, without prefixes and suffixes for library and type: `__nv_sinf` is `sin`."""


def find_function(symbol: str) -> Function | None:
    """Return the function for a library symbol: `__nv_sinf`, `__nv_fsqrt_rn`, `__nv_isnand`."""
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    candidates = (
        name,
        name.removesuffix("f"),
        name.removesuffix("d"),
        name.removeprefix("f"),
        name.removeprefix("d"),
    )
    return next((FUNCTIONS[candidate] for candidate in candidates if candidate in FUNCTIONS), None)


def calling_functions(handle: Any, numpy_dtype: Callable[[Any], Any]) -> Any:
    """Replace `create_extern_elementwise`."""

    def call(self: Any, *call_args: Any) -> Any:
        _library, _path, symbol, arguments, result, _is_pure = call_args
        function = find_function(symbol)
        if function is None:
            raise NotImplementedError(f"the device library's `{symbol}` has no CPU counterpart")
        with np.errstate(all="ignore"):
            values = function(*(argument.data for argument in arguments))
        dtype = getattr(result, "scalar", result)
        return handle(np.asarray(values).astype(numpy_dtype(dtype), copy=False), dtype)

    return call


def bound_functions(stub: ModuleType, target: ModuleType, semantic: Any) -> Iterator[tuple[str, Function]]:
    """Yield the target's functions under the stub's names, bound to the interpreter's semantics."""

    def bind(function: Function) -> Function:
        def call(*arguments: Any, _semantic: Any = None, **options: Any) -> Any:
            return function(*arguments, _semantic=semantic, **options)

        return call

    for name, function in inspect.getmembers(target, callable):
        if not name.startswith("_") and hasattr(stub, name):
            yield name, bind(function)
