"""The user's own Triton kernels: shown at the line of their launch, and compiled like Inductor's."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="code for a GPU needs Triton")

import triton
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_mutation
from torch.library import triton_op, wrap_triton

from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.pretend.placing import Placing
from aotlens.report.records import Target
from aotlens.torch_api import quiet_about_refused_kernels, written_by_triton_kernel
from tests.gpu.kernels import doubling, refused

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


def test_torch_logs_no_traceback_where_triton_refuses_a_kernel() -> None:
    """The words are torch's: a release that changes them fails here."""
    kept: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: kept.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("torch._dynamo")
    logger.addHandler(handler)
    bad = {**launch(), "kernel_idx": kernel_side_table.add_kernel(refused)}
    try:
        with quiet_about_refused_kernels():
            written_by_triton_kernel(bad)
            logger.warning("another")
        assert kept == ["another"]
        assert written_by_triton_kernel(bad) == ["x_ptr", "out_ptr"]
        assert len(kept) == 2
    finally:
        logger.removeHandler(handler)


def test_a_kernel_does_not_keep_a_cuda_graph_from_recording(target: Target) -> None:
    assert target.cuda_graph is not None
    assert target.cuda_graph.verdict == "recorded"


def test_what_a_kernel_writes_to_is_known_without_a_gpu() -> None:
    before = triton.runtime.driver._active
    assert written_by_triton_kernel(launch()) == ["out_ptr"]
    assert triton.runtime.driver._active is before


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what a machine without a GPU answers")
def test_a_launch_among_real_values_is_refused_by_name() -> None:
    with (
        Placing(),
        pytest.raises(UnsupportedError, match="running the Triton kernel `doubling` without a GPU"),
    ):
        triton_kernel_wrapper_mutation(**launch())
