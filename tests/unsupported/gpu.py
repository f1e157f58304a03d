"""What a script asks of a GPU that this machine does not have."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens
from aotlens import CompileOptions
from aotlens.gpu_emulation.contexts import emulating
from tests.unsupported.example import Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


@shows("cuda-query")
def a_graph_of_launches() -> None:
    with emulating("h100", fake=False):  # as `aotlens inspect --gpu h100` runs the script
        torch.cuda.CUDAGraph()


@shows("device-index")
def a_second_gpu() -> None:
    with emulating("h100", fake=False):  # as `aotlens inspect --gpu h100` runs the script
        torch.zeros(2, device="cuda:1")


@shows("kernels-of-absent-gpu")
def kernels_that_are_to_run() -> None:
    @aotlens.compile(options=CompileOptions(backend="inductor"))
    def gelu(x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x)

    with emulating("h100", fake=False):  # as `aotlens inspect --gpu h100` runs the script
        gelu(torch.ones(4, device="cuda"))


def triton_kernel(name: str) -> Any:
    """Return a kernel of `tests/unsupported/kernels.py`."""
    pytest.importorskip("triton")
    return getattr(import_module("tests.unsupported.kernels"), name)


@shows("triton-interpreter")
def kernel_with_inline_assembly() -> None:
    move = triton_kernel("move")  # a Triton kernel that calls `tl.inline_asm_elementwise`

    with emulating("h100", fake=False):  # as `aotlens inspect --gpu h100` runs the script
        x = torch.ones(4, device="cuda")
        move[(1,)](x, torch.empty_like(x), 4)
