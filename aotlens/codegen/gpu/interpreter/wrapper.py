"""Run a wrapper that Inductor generated for a GPU on a machine without one.

Invariant: uninitialised memory holds no number that could pass for a result.
"""

import re
from typing import Any

import torch

from aotlens.torch_api.operators import assert_size_stride

_ON_CUDA = re.compile(r"device\(type='cuda', index=\d+\)|'cuda:\d+'|'cuda'")
_CALL = re.compile(r"^(class Runner\b|def call\()", re.MULTILINE)
_SEEDS = re.compile(r"\baten\.randint\.low_out\(-9223372036854775808, \d+, \[\d+\], out=(\w+)\)")
"""Inductor's own generation of seeds for its kernels: from all 64-bit integers."""
_PROMISED = re.compile(r"^(\s+)assert_size_stride\((buf\d+), ", re.MULTILINE)
"""The wrapper's check of the layout of a library's result."""
CHECK_LAYOUT = "with_promised_layout"
"""The wrapper's name of the function that gives such a result its GPU layout."""
FILL_SEEDS = "fill_seeds"
"""The wrapper's name of the function that fills a tensor with seeds instead."""


def on_cpu(source: str) -> str:
    """Return the wrapper with its own calls on the CPU; the kernels' sources do not change."""
    starts = [match.start() for match in _CALL.finditer(source)]
    start = starts[0] if starts else len(source)
    calls = _ON_CUDA.sub(_named_cpu, source[start:])
    calls = _PROMISED.sub(rf"\1\2 = {CHECK_LAYOUT}(\2, ", calls)
    return source[:start] + _SEEDS.sub(rf"{FILL_SEEDS}(\1)", calls)


def _named_cpu(match: re.Match[str]) -> str:
    return "device(type='cpu')" if match.group().startswith("device") else "'cpu'"


def with_promised_layout(result: torch.Tensor, size: Any, stride: Any, operator: str = "") -> torch.Tensor:
    """Return a library's result in the layout that the operator has on a GPU, which may differ on a CPU.

    Raises AssertionError where it has other sizes.
    """
    if tuple(result.shape) == tuple(size) and result.stride() != tuple(stride):
        return torch.empty_strided(size, stride, dtype=result.dtype).copy_(result)
    assert_size_stride(result, size, stride, operator)
    return result


def uninitialised(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    """Replace `empty_strided` on the GPU: fill with NaN, or the largest integer."""
    tensor = torch.empty_strided(size, stride, dtype=dtype)
    whole = torch.empty(0, dtype=dtype).set_(tensor.untyped_storage())
    if dtype.is_floating_point or dtype.is_complex:
        whole.fill_(float("nan"))
    else:
        whole.fill_(True if dtype is torch.bool else torch.iinfo(dtype).max)
    return tensor
