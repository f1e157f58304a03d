"""The text of generated kernels for each target, read in review when it changes."""

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from aotlens.codegen.gpu.child_processes import ChildFailure, ChildJob, run_in_children
from aotlens.codegen.gpu.lowering import lower
from aotlens.codegen.gpu.machine_code.triton_build import prepare
from aotlens.codegen.gpu.offline.context import offline_gpu
from aotlens.codegen.gpu.records import LoweredGraph
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.model.gpus.names import find_target
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.conftest import Golden

TORCH = "2.13"
"""The release whose Inductor wrote the texts; another one writes the same in other words."""


class Sample(nn.Module):
    """A pointwise kernel, reductions in one block and in a loop, a gather and a scatter, bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 64)
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 4096)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = functional.gelu(self.up(self.norm(self.table(tokens))))
        return hidden.to(torch.bfloat16).softmax(-1).float().sum()


def _lowered(parts: Any, target: GpuTarget) -> tuple[LoweredGraph, ...]:
    """In a child, which may pretend."""

    def work() -> Iterator[Any]:
        with offline_gpu(target):
            yield from lower(parts, {})

    prepare()
    graphs = [graph for _, graph in run_in_children(deque([ChildJob("Inductor", work, 120.0)]), 1)]
    assert not any(isinstance(graph, ChildFailure) for graph in graphs), graphs
    return tuple(graph for graph in graphs if isinstance(graph, LoweredGraph))


def _text(graph: LoweredGraph) -> Iterator[str]:
    """Calls in order, then each kernel without its imports and settings, which hold the machine's."""
    yield f"== {graph.phase}: {', '.join(call.name for call in graph.calls)}\n"
    for kernel in graph.kernels:
        heuristic = re.search(r"@triton_heuristics\.(\w+)\(\s*(size_hints=\{.*?\})", kernel.source)
        assert heuristic is not None
        yield f"\n# {heuristic[1]}, {heuristic[2]}\n{kernel.source[kernel.source.index('def ') :].rstrip()}\n"
    yield "\n"


@pytest.fixture(scope="module")
def parts() -> Any:
    options = CompileOptions("eager", gpu="h100")
    return compile_direct(Sample(), (torch.randint(50, (32,)),), {}, options).parts


@pytest.mark.rotates
@pytest.mark.skipif(not torch.__version__.startswith(TORCH), reason=f"texts are those of torch {TORCH}")
@pytest.mark.parametrize(
    ("sm", "name"),
    [("sm_80", "sm_80_and_sm_90"), ("sm_90", "sm_80_and_sm_90"), ("sm_100", "sm_100")],
)
def test_kernels_of_a_target(parts: Any, sm: str, name: str, golden: Golden) -> None:
    graphs = _lowered(parts, find_target(sm))
    text = "".join(line for graph in graphs for line in _text(graph))
    golden(f"gpu_code/kernels_{name}.txt", text)
