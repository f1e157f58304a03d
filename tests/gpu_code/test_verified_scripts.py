"""`verify --gpu` of what a script has put on a GPU that is not there."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aotlens.codegen.gpu import interpreter_backend as interpreted
from aotlens.codegen.gpu.lowering import lower_to_run
from aotlens.gpu_emulation.attention import gpu_attention
from aotlens.gpu_emulation.contexts import emulating
from aotlens.options import CompileOptions, Interpreted
from aotlens.verify.gpu.gpu_code import BY_COUNTERPART, GpuVerification, verify_gpu_code

pytest.importorskip("triton", reason="code for a GPU needs Triton")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there, and none is pretended")

OPTIONS = CompileOptions(Interpreted(), gpu="h100")


def verified(fn: Callable[..., Any], *args: Any) -> GpuVerification:
    return verify_gpu_code(OPTIONS, fn, args, {})


@pytest.mark.rotates
def test_dropout_is_drawn_again_where_the_tensor_is() -> None:
    with emulating("h100", fake=False):
        x = torch.randn(16, 16, device="cuda", requires_grad=True)
        found = verified(lambda x: functional.dropout(x, 0.5) + torch.rand(16, device="cuda"), x)
    assert found.ok, found.summary()
    assert sum(law.count for law in found.laws) == 16 * 16 + 16


def test_a_mismatch_on_the_gpu_names_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(parts: Any, config: Any) -> Iterator[Any]:
        for graph in lower_to_run(parts, config):
            source = graph.lowered.source.replace("tl_math.sin(", "tl_math.cos(")
            yield replace(graph, lowered=replace(graph.lowered, source=source))

    monkeypatch.setattr(interpreted, "lower_to_run", other)
    with emulating("h100", fake=False):
        found = verified(lambda x: x.sin() * 2, torch.randn(16, device="cuda"))
    assert not found.ok
    assert "the first kernel that differs is the inference kernel" in found.summary()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found: Tensor = self.layers(x)
            return found.square().mean()


@pytest.mark.rotates
def test_half_precision_is_judged_by_double_precision() -> None:
    """Gradients that cancel out (a bias before a batch norm) are as near to it as eager's."""
    torch.manual_seed(0)
    with emulating("h100", fake=False):
        model: Any = Net().cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = torch.randn(4, 3, 12, 12, device="cuda").to(memory_format=torch.channels_last)
        found = verified(model, x)
    assert found.ok, found.summary()


def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, dropout_p=0.5) * 2


def attention_verified() -> GpuVerification:
    torch.manual_seed(0)
    with emulating("h100", fake=False), gpu_attention("h100"):
        made = (torch.randn(1, 2, 8, 16, device="cuda", requires_grad=True) for _ in range(3))
        return verified(attended, *made)


def test_a_fused_attention_drops_the_same_forward_and_backward() -> None:
    found = attention_verified()
    assert found.ok, found.summary()
    assert BY_COUNTERPART in found.summary()


@pytest.mark.rotates
def test_an_attention_whose_backward_drops_others_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(parts: Any, config: Any) -> Iterator[Any]:
        for graph in lower_to_run(parts, config):
            lowered = graph.lowered
            if lowered.phase == "backward":
                assert "0.5, " in lowered.source
                lowered = replace(lowered, source=lowered.source.replace("0.5, ", "0.4, "))
            yield replace(graph, lowered=lowered)

    monkeypatch.setattr(interpreted, "lower_to_run", other)
    found = attention_verified()
    assert {one.kind for one in found.comparison.differences} == {"gradient"}
