"""Launches of the user's own Triton kernels behind Dynamo, on a GPU."""

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.compiled import Compiled
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_graph_module

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.filterwarnings("ignore"),
]


@triton.jit
def doubling(x_ptr, out_ptr, count, BLOCK: tl.constexpr):  # type: ignore  # noqa: ANN001, ANN201, N803, PGH003
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(out_ptr + at, x * 2, mask=at < count)


def launch(x: Tensor, out: Tensor) -> None:
    doubling[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), BLOCK=16)


class Doubled(torch.autograd.Function):
    """Both ways through the kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        launch(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        out = torch.empty_like(gradient)
        launch(gradient.contiguous(), out)
        return out


def into_an_argument(x: Tensor, out: Tensor) -> Tensor:
    launch(x.detach().sin(), out)
    return out * x


def in_both_directions(x: Tensor, out: Tensor) -> Tensor:
    return Doubled.apply(x.sin()).exp() * out


def _given(seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(50, device="cuda", requires_grad=True), torch.randn(50, device="cuda")


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("function", [into_an_argument, in_both_directions])
def test_a_launch_does_what_it_does_in_eager(function: Any, backend: str) -> None:
    seen: list[Compiled] = []

    def compile_it(gm: Any, example_inputs: Any) -> Any:
        seen.append(compile_graph_module(gm, example_inputs, CompileOptions(backend=backend)))
        return seen[-1].call

    torch._dynamo.reset()
    call = torch.compile(function, backend=compile_it, fullgraph=True)
    for seed in (1, 2):
        (x, out), (x_eager, out_eager) = _given(seed), _given(seed)
        found, expected = call(x, out), function(x_eager, out_eager)
        torch.testing.assert_close((found, out), (expected, out_eager))
        gradients = [torch.autograd.grad(r.sum(), v)[0] for r, v in ((found, x), (expected, x_eager))]
        torch.testing.assert_close(*gradients)
    written = [given.name for given in seen[0].target().inputs if given.mutates_data]
    assert written == (["out"] if function is into_an_argument else [])
