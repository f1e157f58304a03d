"""Findings about kernels for a GPU: each on its case, once, and none on ordinary kernels."""

from dataclasses import replace
from typing import Any

import pytest

from aotlens.diagnostics.diagnose import diagnose
from aotlens.diagnostics.gpu import HALF_RATE_F64
from aotlens.model import Diagnostic, Kernel, Related, Stage, StageNode, Target, Tensor
from aotlens.model.gpus.architectures import ARCHITECTURES
from tests.report.sample import inference_target, span, tensor, training_target
from tests.report.sample_kernels import PLAIN_CONFIG as CONFIG

SIGMOID, PRODUCT = span("hidden.sigmoid()"), span("hidden * hidden.sigmoid()")
PLAIN = Kernel(
    *(
        "triton_poi_fused_mul_0",
        "forward",
        "sm_90",
        "tl.store(...)",
        ("sigmoid", "mul_1", "add"),
        (SIGMOID, PRODUCT),
    ),
    registers=32,
    spill_bytes=0,
    shared_bytes=0,
)


def _target(*kernels: Kernel, stages: tuple[Stage, ...] = ()) -> Target:
    """A training target with nothing but these kernels."""
    plain = replace(training_target(), inputs=(), outputs=(), partition=None, wrapper=None, diagnostics=())
    return replace(plain, kernels=kernels, stages=stages)


def _kernel(**changes: Any) -> Kernel:
    return replace(PLAIN, **changes)


def _filling(**changes: Any) -> Kernel:
    """The kernel with other figures of its chosen configuration; another one is listed too."""
    return replace(PLAIN, configs=(replace(CONFIG, **changes), CONFIG))


def test_spills() -> None:
    assert diagnose(_target(_kernel(registers=255, spill_bytes=344))) == (
        Diagnostic(
            "AL601",
            "warning",
            "kernel `triton_poi_fused_mul_0` (forward) spills registers on sm_90: each thread writes 344 B"
            " to memory for values that do not fit into its 255 registers",
            SIGMOID,
            (Related(PRODUCT, "computed by the same kernel"),),
        ),
    )


def test_it_stands_at_the_expression_that_has_most_of_the_kernel() -> None:
    (found,) = diagnose(_target(_kernel(spans=(PRODUCT, SIGMOID), spill_bytes=344)))
    assert found.span == PRODUCT
    assert [one.span for one in found.related] == [SIGMOID]


def test_a_few_spills_are_information() -> None:
    assert [found.severity for found in diagnose(_target(_kernel(spill_bytes=32)))] == ["information"]


def test_a_kernel_that_is_launched_in_a_loop_is_told_once() -> None:
    (found,) = diagnose(_target(*[_kernel(spill_bytes=344)] * 12))
    assert found.message.startswith("kernel `triton_poi_fused_mul_0` (forward, 12 launches) spills")


def test_low_occupancy_names_what_runs_out() -> None:
    (found,) = diagnose(_target(_filling(occupancy=0.125, limit="registers", registers=255)))
    assert (found.code, found.severity, found.span) == ("AL602", "information", SIGMOID)
    assert found.message == (
        "kernel `triton_poi_fused_mul_0` (forward) has an occupancy of 12% on sm_90: registers"
        " run out first, 255 per thread; use fewer live values in this expression"
    )
    (found,) = diagnose(_target(_filling(occupancy=0.0625, limit="shared memory", shared_bytes=116736)))
    assert (
        "shared memory runs out first, 114.0 KiB per block; reduce over fewer values at once" in found.message
    )


LOW = _filling(occupancy=0.125, limit="registers")


@pytest.mark.parametrize(
    "kernels",
    [
        (_filling(),),
        (_filling(occupancy=0.25),),
        (_filling(occupancy=0.125, limit="registers", waves=0.5),),
        (replace(LOW, source="acc = tl.dot(a, b, acc)"),),
        (replace(LOW, target="cpu", spill_bytes=344),),
        (Kernel("extern_kernels.mm", "forward", "sm_90", "", ("addmm",), (SIGMOID,)),),
    ],
    ids=["full", "a quarter", "few blocks", "a matrix product", "on the CPU", "a library call"],
)
def test_ordinary_kernels_have_no_finding(kernels: tuple[Kernel, ...]) -> None:
    assert diagnose(_target(*kernels)) == ()


def _stage(dtype: str) -> Stage:
    double = Tensor(dtype, (8,), (1,), "cpu", False, 64)
    nodes = (
        StageNode("sigmoid", "call_function", "aten.sigmoid.default", (), tensor("f32[8]"), (SIGMOID,)),
        StageNode("mul_1", "call_function", "aten.mul.Tensor", ("sigmoid",), double, (PRODUCT,)),
        StageNode("add", "call_function", "aten.add.Tensor", ("mul_1",), double, (SIGMOID,)),
    )
    return Stage("forward", None, nodes, "")


def test_double_precision_is_told_at_its_expression() -> None:
    second = replace(PLAIN, name="triton_poi_fused_mul_1")
    (found,) = diagnose(_target(PLAIN, second, stages=(_stage("f64"),)))
    assert found == Diagnostic(
        "AL603",
        "information",
        "`hidden * hidden.sigmoid()` computes in f64 on sm_90, and so do the values computed from it"
        " (first in kernel `triton_poi_fused_mul_0`): twice the bytes of f32, and half of its rate",
        PRODUCT,
    )


def test_double_precision_is_a_warning_where_it_is_slow() -> None:
    (found,) = diagnose(_target(_kernel(target="sm_89"), stages=(_stage("c128"),)))
    assert found.severity == "warning"
    assert found.message.endswith("twice the bytes of f32, and a small part, 1/32 to 1/64, of its rate")


def test_no_double_precision() -> None:
    assert diagnose(_target(PLAIN, stages=(_stage("f32"),))) == ()
    assert diagnose(_target(_kernel(target="cpu"), stages=(_stage("f64"),))) == ()


def test_a_kernel_without_code_is_an_error_told_once() -> None:
    refused = _kernel(configs=(), error="Traceback\nTriton refuses line 4 of the kernel: bf16")
    found = diagnose(_target(refused, replace(refused, call=1)))
    (told,) = found
    assert told.severity == "error"
    assert told.message == (
        f"kernel `{refused.name}` ({refused.phase}, 2 launches) could not be compiled for sm_90:"
        " Triton refuses line 4 of the kernel: bf16"
    )


def test_the_sample_has_none() -> None:
    for target in (training_target(), inference_target()):
        assert not [found for found in diagnose(target) if found.code.startswith("AL6")]


def test_where_double_precision_is_slow_its_rate_is_the_one_that_the_message_names() -> None:
    slow = {entry for entry in ARCHITECTURES if entry.sm not in HALF_RATE_F64}
    assert {entry.f32_lanes // entry.f64_lanes for entry in slow} == {32, 64}
