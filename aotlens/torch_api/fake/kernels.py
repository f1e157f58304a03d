"""Corrections of the kernels that compute fake tensors.

Each function makes the value that replaces torch's own (scope `COMPILE`).
"""

import random
import sys
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import _meta_registrations
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode, _BypassDispatchCache

from aotlens.torch_api.fake.tensors import is_same_expression
from aotlens.torch_api.operators import check
from aotlens.torch_api.patches.scopes import Current, around

__all__ = [
    "forget_results",
    "grouped_mm",
    "is_pending_collective",
    "output_info",
    "own_random",
    "own_results",
    "view",
]


class _ReportsBfloat16:
    """A tensor that reports bfloat16 as its dtype; all other attributes are the tensor's."""

    dtype = torch.bfloat16

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)


def is_pending_collective(value: object) -> bool:
    """Return True if the value is what an eager collective returns before anybody waits for it."""
    module: Any = sys.modules.get("torch.distributed._functional_collectives")
    return module is not None and isinstance(value, module.AsyncCollectiveTensor)


def own_random(original: Any, current: Current) -> Any:
    """Return the generator for ids in fake kernels of collectives; theirs is the user's `random`."""
    return _COLLECTIVES_RANDOM if original is random else original


_COLLECTIVES_RANDOM = random.Random()


@around
def grouped_mm(original: Callable[..., Any], mat_a: Any, mat_b: Any, **options: Any) -> Any:
    """Make `_grouped_mm`'s fake kernel accept the dtypes of its kernels, and not bfloat16 alone.

    Its other checks stay.
    """
    module: Any = _meta_registrations
    known = mat_a.dtype in (torch.float32, torch.float16) and mat_a.dtype is mat_b.dtype
    if options.get("scale_a") is not None or not known:
        return original(mat_a, mat_b, **options)
    check(
        options["out_dtype"] in (None, mat_a.dtype),
        lambda: "Grouped gemm output dtype must match `mat_a` dtype",
    )
    original(_ReportsBfloat16(mat_a), _ReportsBfloat16(mat_b), **{**options, "out_dtype": None})
    return module._create_grouped_mm_output_tensor(mat_a, mat_b, options["offs"], None)


def view(original: Callable[..., Any], current: Current) -> Any:
    """Make the fake kernel of `view` compute the strides of size-1 dimensions as the real kernel does.

    Operators read the memory format off those strides: a group norm whose input is contiguous by its fake
    strides alone fails at run time.
    """
    strides_of: Any = getattr(fake_impls, "_compute_stride", None)
    if strides_of is None:
        return original
    oblivious = {"size_oblivious": True} if "size_oblivious" in signature(strides_of).parameters else {}

    def view(mode: FakeTensorMode, func: Any, source: Any, *shape: Any, **options: Any) -> Any:
        result = original(mode, func, source, *shape, **options)
        ones = [dim for dim, size in enumerate(result.shape) if type(size) is int and size == 1]
        if not ones:
            return result
        strides = strides_of(source.shape, source.stride(), result.shape, **oblivious)
        if strides is None or all(is_same_expression(strides[dim], result.stride(dim)) for dim in ones):
            return result
        return source.as_strided(result.shape, strides)

    return view


_RESULTS: dict[Any, Any] = {}


def own_results(original: dict[Any, Any], current: Current) -> Any:
    """The cache of the results of fake kernels: those of changed kernels and of torch's own do not mix."""
    return _RESULTS


@around
def output_info(original: Callable[..., Any], self: Any, state: Any, key: Any, *call: Any) -> Any:
    """What the cache notes of one result: nothing of a result that begins within its memory.

    The cache makes that result anew, at the beginning of its memory: `diagonal_scatter` and the like keep the
    offset of their operand.
    """
    info = original(self, state, key, *call)
    is_new = info.metadata is not None and info.view_idx is None and info.inplace_idx is None
    offset = info.metadata.storage_offset if is_new else 0  # of a symbol, an object that rejects `==`
    if type(offset) is not int or offset != 0:
        raise _BypassDispatchCache("storage offset")
    return info


def forget_results() -> None:
    """Drop what fake kernels returned: it depends on the devices that there are."""
    FakeTensorMode.cache_clear()
    _RESULTS.clear()
