"""Run dropout as a GPU does: as one operator, which keeps its mask.

A GPU that is absent looks like the CPU to torch's C++, which would
record the random numbers, the comparison and the product as operators of their own.
"""

from contextlib import AbstractContextManager
from typing import Any

from aotlens.capture.operators import aten
from aotlens.gpu_emulation.operator_kernels import overriding_kernels
from aotlens.torch_api.fake.tensors import FakeTensor

__all__ = ["gpu_dropout"]

OPERATOR = aten.dropout.default
KEYS = ("CUDA", "AutogradCUDA")


def gpu_dropout() -> AbstractContextManager[None]:
    """Within the context, dropout of fake tensors on a GPU is `aten.native_dropout`."""
    return overriding_kernels(("dropout", _dropout, key) for key in KEYS)


def _dropout(x: Any, p: float, train: bool) -> Any:
    if isinstance(x, FakeTensor) and train and 0 < p < 1 and x.numel() > 0:
        return aten.native_dropout.default(x, p, train)[0]
    return OPERATOR.decompose(x, p, train)
