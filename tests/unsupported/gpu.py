"""What a script asks of a GPU that this machine does not have."""

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
