"""Kernels from a template of Inductor's: the first choice is taken, the others are listed with figures."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from aotlens.codegen.gpu.templates import ASSUMED, LIBRARY_ONLY, TemplateChoices
from aotlens.model.report import Target
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct

TRIED = 3
"""Of about twenty choices: each takes a compiler's second."""


@pytest.fixture(autouse=True)
def few_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    select = TemplateChoices.select
    monkeypatch.setattr(TemplateChoices, "select", lambda self, choices: select(self, choices[: TRIED + 1]))


def target_of(function: Any, *args: Tensor, gpu: str = "h100") -> Target:
    options = CompileOptions("eager", gpu=gpu, gpu_texts=("ptx",), inductor_config=(("max_autotune", True),))
    return compile_direct(function, args, {}, options).target()


def product(x: Tensor, weight: Tensor) -> Tensor:
    return torch.relu(x @ weight)


@pytest.mark.rotates
def test_a_product_from_a_template_with_all_its_choices() -> None:
    x, weight = (torch.randn(64, 64, dtype=torch.bfloat16) for _ in range(2))
    target = target_of(product, x, weight)
    (kernel,) = target.kernels
    assert kernel.name == "triton_tem_fused_mm_relu_0"
    assert kernel.nodes == ("mm", "relu")
    assert kernel.error == ""
    assert len(kernel.configs) == TRIED
    assert {tuple(config.blocks) for config in kernel.configs} == {
        ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
    }
    sizes = [(config.blocks["BLOCK_M"], config.blocks["BLOCK_N"]) for config in kernel.configs]
    for (rows, columns), config in zip(sizes, kernel.configs, strict=True):
        assert config.grid == (64 // rows * (64 // columns), 1, 1)
        assert config.registers > 0
        assert config.shared_bytes > 0
    assert "mma" in kernel.texts[0].text
    assert ASSUMED in target.gpu_assumptions


@pytest.mark.rotates
def test_a_convolution_from_a_template() -> None:
    def convolved(x: Tensor, weight: Tensor) -> Tensor:
        return functional.conv2d(x, weight, padding=1)

    target = target_of(convolved, torch.randn(2, 16, 8, 8), torch.randn(16, 16, 3, 3))
    (kernel,) = [kernel for kernel in target.kernels if "triton_tem" in kernel.name]
    assert kernel.nodes == ("convolution",)
    assert 1 < len(kernel.configs) <= TRIED
    assert [kernel for kernel in target.kernels if kernel.kind == "library"] == []


def test_a_gpu_that_is_too_small_for_templates_calls_the_library() -> None:
    x, weight = (torch.randn(64, 64, dtype=torch.float16) for _ in range(2))
    target = target_of(product, x, weight, gpu="t4")
    assert [kernel.kind for kernel in target.kernels] == ["library", "generated"]
    assert ASSUMED not in target.gpu_assumptions


def test_without_a_template_the_library_is_taken() -> None:
    offered = TemplateChoices()
    assert offered.select(["one", "other"]) == ["one"]
    assert offered.assumptions == [LIBRARY_ONLY]
    assert offered.select(["alone"]) == ["alone"]


class Template:
    """What is asked of a choice of Inductor's."""

    def __init__(self) -> None:
        self.make_kernel_render = object()


def test_where_choices_can_run_all_are_offered_and_the_rest_is_kept_beside_the_taken_one() -> None:
    first, second, library = Template(), Template(), object()
    offered = TemplateChoices(runs=True)
    assert offered.select([library, first, second]) == [library, first, second]
    taken = SimpleNamespace(node=SimpleNamespace(make_kernel_render=second.make_kernel_render))
    offered.note("kernel", [taken])
    assert offered.kernels == {"kernel": [first]}
    assert offered.assumptions == []
