"""The user's own Triton kernels: shown at the line of their launch, and compiled like Inductor's."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="code for a GPU needs Triton")

import triton
import triton.language as tl
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch.library import triton_op, wrap_triton

from aotlens.errors import UserError
from aotlens.gpu_emulation.contexts import emulating
from aotlens.model.report import Target
from aotlens.options import CompileOptions, Interpreted
from aotlens.pipeline import compile_direct
from aotlens.torch_api.triton import mutated_by_triton_kernel, mute_triton_analysis_log
from aotlens.verify.gpu.gpu_code import verify_gpu_code
from tests.gpu.kernels import doubling, norm, refused

LENGTH = 1000
BLOCK = 64


@triton_op("aotlens_tests::doubled", mutates_args={})
def doubled(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(doubling)[(triton.cdiv(LENGTH, BLOCK),)](x, out, LENGTH, BLOCK=BLOCK)
    return out


def launch() -> dict[str, Any]:
    """As Dynamo writes `doubling[(16,)](x, out, LENGTH, BLOCK=64)`."""
    x, out = torch.randn(LENGTH), torch.empty(LENGTH)
    return {
        "kernel_idx": kernel_side_table.add_kernel(doubling),
        "constant_args_idx": kernel_side_table.add_constant_args({"count": LENGTH, "BLOCK": BLOCK}),
        "grid": [(16, 1, 1)],
        "tma_descriptor_metadata": {},
        "kwargs": {"x_ptr": x, "out_ptr": out},
    }


def scaled(x: Tensor, weight: Tensor) -> Tensor:
    return (doubled(x) * weight).relu()


@pytest.fixture(scope="module")
def target() -> Target:
    options = CompileOptions("eager", gpu="h100", gpu_texts=("ptx",))
    return compile_direct(scaled, (torch.randn(LENGTH), torch.randn(LENGTH)), {}, options).target()


def test_a_kernel_behind_an_operator_is_shown_and_compiled(target: Target) -> None:
    kernel, pointwise = target.kernels
    assert (kernel.name, kernel.kind, kernel.error) == ("doubling_0", "generated", "")
    assert "x * 2" in kernel.source
    assert ".target sm_90a" in kernel.texts[0].text
    (config,) = kernel.configs
    assert config.grid == (-(-LENGTH // BLOCK), 1, 1)
    assert config.registers > 0
    assert dict(config.blocks) == {"BLOCK": BLOCK}
    assert {span.line for span in kernel.spans} == {scaled.__code__.co_firstlineno + 1}
    assert pointwise.name.startswith("triton_poi_fused_mul_relu")
    assert target.gpu_error == ""


def test_what_a_kernel_is_given_counts_and_what_it_computes_is_unknown(target: Target) -> None:
    kernel, pointwise = target.kernels
    assert (kernel.bytes_read, kernel.bytes_written, kernel.flops) == (4 * LENGTH, 4 * LENGTH, None)
    assert (pointwise.bytes_read, pointwise.bytes_written) == (8 * LENGTH, 4 * LENGTH)
    (apart,) = pointwise.unfused
    assert (apart.code, apart.bytes, apart.kernel) == ("user-kernel", 4 * LENGTH, kernel.name)


ROWS = 4096


def norms_of_whole_rows(x: Tensor) -> Tensor:
    """One warp holds a row: 256 and 128 values in the registers of each thread."""
    wide, narrow = torch.empty_like(x), torch.empty_like(x)
    norm[(ROWS,)](x, wide, BLOCK=8192, num_warps=1)
    norm[(ROWS,)](wide, narrow, BLOCK=4096, num_warps=1)
    return narrow


@pytest.mark.rotates
def test_what_does_not_fit_into_registers_is_told_at_the_launch() -> None:
    options = CompileOptions("eager", gpu="h100")
    found = compile_direct(norms_of_whole_rows, (torch.empty(ROWS, 8192),), {}, options).target()
    first = norms_of_whole_rows.__code__.co_firstlineno
    lines = [(one.code, one.span.line - first) for one in found.diagnostics if one.span is not None]
    assert lines == [("AL601", 3), ("AL602", 3), ("AL602", 4)]


def test_torch_logs_no_traceback_where_triton_refuses_a_kernel() -> None:
    """The words are torch's: a release that changes them fails here."""
    kept: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: kept.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("torch._dynamo")
    logger.addHandler(handler)
    bad = {**launch(), "kernel_idx": kernel_side_table.add_kernel(refused)}
    try:
        with mute_triton_analysis_log():
            mutated_by_triton_kernel(bad)
            logger.warning("another")
        assert kept == ["another"]
        assert mutated_by_triton_kernel(bad) == ["x_ptr", "out_ptr"]
        assert len(kept) == 2
    finally:
        logger.removeHandler(handler)


def test_a_kernel_does_not_keep_a_cuda_graph_from_recording(target: Target) -> None:
    assert target.cuda_graph is not None
    assert target.cuda_graph.verdict == "recorded"


def test_what_a_kernel_writes_to_is_known_without_a_gpu() -> None:
    before = triton.runtime.driver._active
    assert mutated_by_triton_kernel(launch()) == ["out_ptr"]
    assert triton.runtime.driver._active is before


@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128)], key=["count"])
@triton.jit
def tripling(x_ptr, out_ptr, count, left_out, BLOCK: tl.constexpr, KIND: tl.constexpr):  # type: ignore  # noqa: ANN001, ANN201, N803, PGH003
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < count).to(KIND) * 3, mask=at < count)


def tripled(x: Tensor) -> Tensor:
    out, count = torch.empty_like(x), x.numel()
    tripling[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](x, out, count, None, KIND=tl.float32)
    return out


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return tripled(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return tripled(gradient.contiguous())


def both_ways(x: Tensor, weight: Tensor) -> Tensor:
    result: Tensor = Tripled.apply(x * weight).relu()
    return result


needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there, and none is pretended")


def leaves(device: str = "cpu") -> tuple[Tensor, Tensor]:
    x, weight = (torch.randn(200, device=device, requires_grad=True) for _ in range(2))
    return x, weight


@pytest.mark.rotates
def test_launches_by_python_itself_are_recorded_forward_and_backward() -> None:
    target = compile_direct(both_ways, leaves(), {}, CompileOptions("eager", gpu="h100")).target()
    found = [kernel for kernel in target.kernels if kernel.name.startswith("tripling")]
    assert [kernel.phase for kernel in found] == ["forward", "backward"]
    assert [kernel.error for kernel in found] == ["", ""]
    assert [len(kernel.configs) for kernel in found] == [2, 2]
    assert {span.line for span in found[0].spans} == {tripled.__code__.co_firstlineno + 2}


@pytest.mark.rotates
@needs_no_gpu
def test_launches_are_interpreted_where_no_gpu_is() -> None:
    before = triton.runtime.JITFunction.run
    with emulating("h100", fake=False):
        x, weight = leaves("cuda")
        both_ways(x, weight).sum().backward()
        assert x.grad is not None
        assert x.grad.is_cuda
        torch.testing.assert_close(x.grad, 3 * weight.detach() * (x * weight > 0))
        verification = verify_gpu_code(
            CompileOptions(Interpreted(), gpu="sm_90"), both_ways, leaves("cuda"), {}
        )
        assert verification.ok, verification.summary()
        assert dict(verification.kernels) == {"forward": 3, "backward": 3}
        assert verification.skipped == ()
    assert triton.runtime.JITFunction.run is before


@needs_no_gpu
def test_a_launch_that_a_gpu_could_not_make_either_is_refused() -> None:
    with emulating("h100", fake=False):
        x, out = torch.randn(100, device="cuda"), torch.empty(100, device="cuda")
        with pytest.raises(UserError, match="`x_ptr` on the CPU and other tensors on cuda:0"):
            doubling[(2,)](x.cpu(), out, 100, BLOCK=64)
        # fewer than 28, if `out` lies right behind `x`
        with pytest.raises(UserError, match=r"reaches outside of .* at `x = tl.load.*: reads \d+ of 64"):
            doubling[(2,)](x, out, 128, BLOCK=64)
        doubling[(2,)](x, out, 100, BLOCK=64)
        torch.testing.assert_close(out, 2 * x)
