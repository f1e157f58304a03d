"""What a wrapper that Inductor wrote for a GPU calls, on a machine that has none.

Invariant: memory that nothing has written yet holds no number that could pass for a result.
"""

import re
from typing import Any

import torch

from aotlens.codegen.gpu.interpreter.random_numbers import Draws
from aotlens.torch_api import TorchDispatchMode

_ON_CUDA = re.compile(r"device\(type='cuda', index=\d+\)|'cuda:\d+'|'cuda'")
_CALL = re.compile(r"^(class Runner\b|def call\()", re.MULTILINE)
_SEEDS_FROM = -(2**63)
"""The lower end of what Inductor draws its seeds from."""


def on_cpu(source: str) -> str:
    """The wrapper with its own calls on the CPU; the kernels' sources keep their GPU."""
    found = [match.start() for match in _CALL.finditer(source)]
    at = found[0] if found else len(source)
    return source[:at] + _ON_CUDA.sub(_named_cpu, source[at:])


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


class HandingOutSeeds(TorchDispatchMode):
    """Knows the draw of Inductor's seeds among the wrapper's calls, and hands out numbered ones."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self._draws = draws

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func is torch.ops.aten.randint.low_out and args[0] == _SEEDS_FROM:
            self._draws.hand_out(options["out"])
            return options["out"]
        return func(*args, **options)
