"""What a wrapper that Inductor wrote for a GPU calls, on a machine that has none.

Invariant: memory that nothing has written yet holds no number that could pass for a result.
"""

import re
from typing import Any

import torch

_ON_CUDA = re.compile(r"device\(type='cuda', index=\d+\)|'cuda:\d+'|'cuda'")
_CALL = re.compile(r"^(class Runner\b|def call\()", re.MULTILINE)
_SEEDS = re.compile(r"\baten\.randint\.low_out\(-9223372036854775808, \d+, \[\d+\], out=(\w+)\)")
"""Inductor's own draw of the seeds for its kernels: from all 64-bit integers."""
HAND_OUT_SEEDS = "hand_out_seeds"
"""The wrapper's name of the function that fills a tensor with seeds instead."""


def on_cpu(source: str) -> str:
    """The wrapper with its own calls on the CPU; the kernels' sources keep their GPU."""
    found = [match.start() for match in _CALL.finditer(source)]
    at = found[0] if found else len(source)
    calls = _ON_CUDA.sub(_named_cpu, source[at:])
    return source[:at] + _SEEDS.sub(rf"{HAND_OUT_SEEDS}(\1)", calls)


def _named_cpu(match: re.Match[str]) -> str:
    return "device(type='cpu')" if match.group().startswith("device") else "'cpu'"


def unwritten(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    """In the place of `empty_strided` on the GPU: NaN, or the largest integer."""
    made = torch.empty_strided(size, stride, dtype=dtype)
    whole = torch.empty(0, dtype=dtype).set_(made.untyped_storage())
    if dtype.is_floating_point or dtype.is_complex:
        whole.fill_(float("nan"))
    else:
        whole.fill_(True if dtype is torch.bool else torch.iinfo(dtype).max)
    return made
