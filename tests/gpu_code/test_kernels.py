"""Programs through to machine code for GPUs that are not there, forward and backward."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from aotlens.codegen.gpu.attention import attentions_recorded
from aotlens.codegen.gpu.launches import launches_in
from aotlens.codegen.gpu.machine_code.triton_build import build_kernel
from aotlens.codegen.gpu.records import KernelSource
from aotlens.errors import BackendError, UserError
from aotlens.model.report import Kernel, Target
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.render.text.kernels import kernel_lines
from aotlens.render.text.layout import Page
from tests.conftest import Golden

MACHINE_HAS_A_GPU = torch.cuda.is_available()


def target_of(function: Any, *args: Any, gpu: str = "h100", dynamic: bool = False) -> Target:
    return compile_direct(function, args, {}, CompileOptions("eager", gpu=gpu, dynamic=dynamic)).target()


def scaled_softmax(x: Tensor) -> Tensor:
    return (x * 0.5).softmax(-1)


@pytest.mark.rotates
def test_source_of_a_softmax(golden: Golden) -> None:
    (kernel,) = target_of(scaled_softmax, torch.randn(64, 128)).kernels
    body = kernel.source[kernel.source.index("@triton.jit") :]
    golden("gpu_code/scaled_softmax.txt", re.sub(r"/\S+/(\w+\.py):\d+", r"\1", body))
    assert [(text.language, bool(text.text)) for text in kernel.texts] == [
        (language, True) for language in ("ttir", "ttgir", "llir", "ptx", "sass")
    ]
    assert ".target sm_90a" in _text(kernel, "ptx")


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.norm = nn.LayerNorm(128)
        self.second = nn.Linear(128, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(functional.gelu(self.first(x))))


@pytest.mark.rotates
@pytest.mark.parametrize(("gpu", "sm"), [("a100", "sm_80"), ("sm_90", "sm_90")])
def test_forward_and_backward_of_an_mlp(gpu: str, sm: str) -> None:
    target = target_of(Mlp(), torch.randn(32, 64), gpu=gpu)
    assert {kernel.target for kernel in target.kernels} == {sm}
    assert {kernel.phase for kernel in target.kernels} == {"forward", "backward"}
    assert [kernel.name for kernel in target.kernels if kernel.error] == []
    library = [kernel.name for kernel in target.kernels if kernel.kind == "library"]
    assert library == ["extern_kernels.addmm"] * 2 + ["extern_kernels.mm"] * 3
    generated = [kernel for kernel in target.kernels if kernel.kind == "generated"]
    for kernel in generated:
        chosen = kernel.configs[0]
        assert 8 <= chosen.registers <= 255
        assert 0 < chosen.occupancy <= 1
        assert chosen.grid is not None
        assert min(chosen.grid) >= 1
        assert f".target {sm}" in _text(kernel, "ptx")
        for language in ("ttir", "ttgir"):
            assert "tt.store" in _text(kernel, language)
            assert "loc(" not in _text(kernel, language)
        assert all(span.file == __file__ for span in kernel.spans)
    assert {span.line for kernel in generated for span in kernel.spans} == {
        Mlp.forward.__code__.co_firstlineno + 1
    }


@pytest.mark.rotates
@pytest.mark.parametrize(("dtype", "op"), [(torch.bfloat16, "flash"), (torch.float32, "efficient")])
def test_attention_is_the_one_that_a_gpu_takes(dtype: torch.dtype, op: str) -> None:
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True) * 2

    query, key, value = (torch.randn(2, 4, 32, 16, dtype=dtype, requires_grad=True) for _ in range(3))
    target = target_of(attend, query, key, value)
    called = [kernel.name for kernel in target.kernels if kernel.kind == "library"]
    assert called == [
        f"torch.ops.aten._scaled_dot_product_{op}_attention.default",
        f"torch.ops.aten._scaled_dot_product_{op}_attention_backward.default",
    ]
    assert any("scaled_dot_product_attention" in text for text in target.gpu_assumptions)


def test_an_attention_that_the_cpu_records_in_its_steps_is_told_with_its_line() -> None:
    def attend(x: Tensor, dropout: float) -> Tensor:
        return functional.scaled_dot_product_attention(x, x, x, dropout_p=dropout)

    x = torch.randn(2, 4, 8, 16, requires_grad=True)
    found = {}
    for dropout in (0.0, 0.5):
        compiled = compile_direct(attend, (x, dropout), {}, CompileOptions("eager"))
        found[dropout] = list(attentions_recorded(compiled.captured.calls))
    (said,) = found[0.5]
    assert f"test_kernels.py:{attend.__code__.co_firstlineno + 1}:16: `functional.scaled_dot" in said
    assert "a GPU takes one flash or memory-efficient kernel" in said
    assert found[0.0] == []


@pytest.mark.rotates
def test_of_symbolic_sizes_the_grid_is_the_example_s() -> None:
    target = target_of(scaled_softmax, torch.randn(64, 128), dynamic=True)
    config = target.kernels[0].configs[0]
    assert config.grid == (64 // config.blocks["XBLOCK"], 1, 1)
    assert config.grid_of_example
    assert config.waves is not None
    assert "blocks at the example's sizes, of XBLOCK=" in "".join(
        map(str, kernel_lines(target, Page(110, target.file)))
    )


def test_launches_are_read_with_their_arguments() -> None:
    source = """
    def call(self, args):
        s3 = arg0_1_size[0]
        xnumel = 2*s3
        k.run(buf0, reinterpret_tensor(buf1, (4, s3), (s3, 1), 0), xnumel, max(1, s3), u0, stream=raw_stream0)
    """
    inside = "reinterpret_tensor(buf1, (4, s3), (s3, 1), 0)"
    (launch,) = launches_in(source)
    assert launch.arguments == ("buf0", inside, "xnumel", "max(1, s3)", "u0")
    assert [launch.buffer(at) for at in (0, 1)] == ["buf0", None]
    (launch,) = launches_in(source, {"s3": 7})
    assert (launch.arguments, launch.is_example) == (("buf0", inside, "14", "7", "u0"), True)


@pytest.mark.rotates
def test_dropout_draws_on_the_gpu() -> None:
    def dropped(x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5).relu()

    target = target_of(dropped, torch.randn(64, 128, requires_grad=True))
    source = "".join(kernel.source for kernel in target.kernels)
    assert "triton_helpers.rand" in source or "tl.rand(" in source  # the second with torch 2.11


@pytest.mark.rotates
def test_a_kernel_that_triton_refuses_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(kernel: KernelSource) -> Any:
        if kernel.phase == "forward":
            kernel = replace(kernel, source=kernel.source.replace("tl.store(", "tl.keep("))
        return build_kernel(kernel)

    monkeypatch.setattr("aotlens.codegen.gpu.generation.build_kernel", refused)
    target = target_of(scaled_softmax, torch.randn(64, 128, requires_grad=True))
    forward, backward = target.kernels
    assert re.fullmatch(
        r"Triton rejects line \d+ of the kernel, `tl.keep\(.*\)`: .* has no attribute 'keep'.*", forward.error
    )
    assert (backward.phase, backward.error, len(backward.texts)) == ("backward", "", 5)
    printed = "".join(line.plain for line in kernel_lines(target, Page(200, target.file)))
    assert forward.error in printed


@pytest.mark.rotates
def test_a_kernel_that_takes_too_long_is_stopped() -> None:
    options = CompileOptions("eager", gpu="h100", kernel_limit_s=0.01)
    (kernel,) = compile_direct(scaled_softmax, (torch.randn(64, 128),), {}, options).target().kernels
    assert kernel.error == (
        f"Triton on `{kernel.name}` took longer than its time limit of 0.01 s, and was stopped;"
        " --kernel-time-limit gives it longer"
    )


def test_what_inductor_cannot_lower_leaves_the_rest_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(parts: Any, config: Any) -> Any:
        raise NotImplementedError("no lowering for `mine`")

    monkeypatch.setattr("aotlens.codegen.gpu.generation.lower", failing)
    target = target_of(scaled_softmax, torch.randn(64, 128))
    assert target.gpu_error == (
        "no code for sm_90 of `scaled_softmax`: NotImplementedError: no lowering for `mine`"
    )
    assert target.kernels == ()
    assert target.outputs


@pytest.mark.rotates
def test_both_branches_of_a_condition() -> None:
    def either(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    target = target_of(either, torch.randn(8))
    assert target.gpu_error == ""
    assert [kernel.error for kernel in target.kernels] == [""] * 3


@pytest.mark.rotates
def test_a_backward_that_computes_nothing_has_no_kernels() -> None:
    target = target_of(lambda x: x + torch.rand_like(x), torch.randn(8, 8, requires_grad=True))
    assert target.gpu_error == ""
    assert {kernel.phase for kernel in target.kernels} == {"forward"}


@pytest.mark.rotates
def test_what_a_kernel_moves_and_the_least_time_for_it() -> None:
    (kernel,) = target_of(scaled_softmax, torch.randn(64, 128)).kernels
    assert kernel.bytes_moved == 2 * 64 * 128 * 4
    assert kernel.bound == "memory"
    assert kernel.floor_us == pytest.approx(kernel.bytes_moved / 3350e9 * 1e6)


def test_what_a_library_call_moves_and_computes() -> None:
    (kernel,) = target_of(torch.mm, torch.randn(64, 32), torch.randn(32, 16)).kernels
    assert (kernel.name, kernel.kind) == ("extern_kernels.mm", "library")
    assert kernel.bytes_moved == (64 * 32 + 32 * 16 + 64 * 16) * 4
    assert kernel.flops == 2 * 64 * 32 * 16


@pytest.mark.rotates
def test_text_of_the_kernels(golden: Golden) -> None:
    target = target_of(Mlp(), torch.randn(32, 64))
    figures = "".join(f"{line.plain}\n" for line in kernel_lines(target, Page(110, target.file)))
    names = re.sub(r" +", " ", re.sub(r"\d+(\.\d+)?", "#", figures))  # figures differ between assemblers
    golden("gpu_code/mlp_kernels.txt", names.replace(" · occupancy limited by registers", ""))


@pytest.mark.rotates
def test_this_process_knows_of_no_gpu() -> None:
    target_of(scaled_softmax, torch.randn(64, 128))
    assert torch.cuda.is_available() == MACHINE_HAS_A_GPU
    assert not torch.cuda.is_initialized()


def test_an_unknown_gpu_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="unknown GPU 'h1oo'"):
        target_of(scaled_softmax, torch.randn(4, 4), gpu="h1oo")


def test_without_triton_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aotlens.codegen.gpu.offline.requirements.find_spec", lambda name: None)
    with pytest.raises(BackendError, match=r"needs Triton, which is not installed; .*aotlens\[gpu\]"):
        target_of(scaled_softmax, torch.randn(4, 4))


def _text(kernel: Kernel, language: str) -> str:
    return next(text.text for text in kernel.texts if text.language == language)
