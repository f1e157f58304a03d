"""What a wrapper that Inductor wrote for a GPU calls, on a machine that has none.

Invariant: memory that nothing has written yet holds no number that could pass for a result.
"""

import re
from typing import Any

import torch

from aotlens.torch_api.operators import assert_size_stride

_ON_CUDA = re.compile(r"device\(type='cuda', index=\d+\)|'cuda:\d+'|'cuda'")
_CALL = re.compile(r"^(class Runner\b|def call\()", re.MULTILINE)
_SEEDS = re.compile(r"\baten\.randint\.low_out\(-9223372036854775808, \d+, \[\d+\], out=(\w+)\)")
"""Inductor's own draw of the seeds for its kernels: from all 64-bit integers."""
_PROMISED = re.compile(r"^(\s+)assert_size_stride\((buf\d+), ", re.MULTILINE)
"""The wrapper's check of a library's result."""
ALIGNMENT_PROMISES = "check_alignment_promise"
"""The wrapper's name of the function that lays such a result out as on the GPU."""
HAND_OUT_SEEDS = "hand_out_seeds"
"""The wrapper's name of the function that fills a tensor with seeds instead."""


def on_cpu(source: str) -> str:
    """The wrapper with its own calls on the CPU; the kernels' sources keep their GPU."""
    starts = [match.start() for match in _CALL.finditer(source)]
    start = starts[0] if starts else len(source)
    calls = _ON_CUDA.sub(_named_cpu, source[start:])
    calls = _PROMISED.sub(rf"\1\2 = {ALIGNMENT_PROMISES}(\2, ", calls)
    return source[:start] + _SEEDS.sub(rf"{HAND_OUT_SEEDS}(\1)", calls)


def _named_cpu(match: re.Match[str]) -> str:
    return "device(type='cpu')" if match.group().startswith("device") else "'cpu'"


def check_alignment_promise(result: torch.Tensor, size: Any, stride: Any, operator: str = "") -> torch.Tensor:
    """What a library gave, in the layout that its operator has on a GPU: on a CPU some have another.

    Raises AssertionError where it has other sizes.
    """
    if tuple(result.shape) == tuple(size) and result.stride() != tuple(stride):
        return torch.empty_strided(size, stride, dtype=result.dtype).copy_(result)
    assert_size_stride(result, size, stride, operator)
    return result


def unwritten(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    """In the place of `empty_strided` on the GPU: NaN, or the largest integer."""
    made = torch.empty_strided(size, stride, dtype=dtype)
    whole = torch.empty(0, dtype=dtype).set_(made.untyped_storage())
    if dtype.is_floating_point or dtype.is_complex:
        whole.fill_(float("nan"))
    else:
        whole.fill_(True if dtype is torch.bool else torch.iinfo(dtype).max)
    return made
