"""Run dropout as a GPU does: as one operator, which keeps its mask.

A GPU that is absent looks like the CPU to torch's C++, which would draw, compare and multiply one by one.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.torch_api.fake import FakeTensor

__all__ = ["gpu_dropout"]

OPERATOR = aten.dropout.default
KEYS = ("CUDA", "AutogradCUDA")


@contextmanager
def gpu_dropout() -> Iterator[None]:
    """Within the context, dropout of fake tensors on a GPU is `aten.native_dropout`."""
    kernels = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"(?s).*Overriding a previously registered kernel")
            for key in KEYS:
                kernels.impl("dropout", _dropout, key)
        yield
    finally:
        kernels._destroy()


def _dropout(x: Any, p: float, train: bool) -> Any:
    if isinstance(x, FakeTensor) and train and 0 < p < 1 and x.numel() > 0:
        return aten.native_dropout.default(x, p, train)[0]
    return OPERATOR.decompose(x, p, train)
