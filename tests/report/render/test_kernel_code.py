"""The code of single kernels: which ones, in which language, and what is said where there is none."""

from dataclasses import replace

import pytest

from aotlens.errors import UserError
from aotlens.model.report import Kernel, KernelText, Report
from aotlens.render.kernel_code import kernel_code, parse_languages
from tests.report.sample import training_target
from tests.report.sample_kernels import PLAIN_CONFIG

CONFIG = replace(PLAIN_CONFIG, shared_bytes=16, grid=(8, 1, 1), occupancy=0.5, limit="registers", waves=1.0)
SUM = Kernel(
    *("triton_red_fused_sum_0", "forward", "sm_90", "\nimport triton\n", (), ()),
    configs=(CONFIG, replace(CONFIG, blocks={"XBLOCK": 8}, grid=None)),
    texts=(KernelText("ptx", ".version 8.7\n"), KernelText("sass", "EXIT ;\n")),
)
MUL = replace(SUM, name="triton_poi_fused_mul_1", texts=(KernelText("ptx", ".version 8.6\n"),))
AGAIN = replace(SUM, texts=())  # a second launch
CALL = replace(SUM, name="extern_kernels.mm", kind="library", source="", configs=(), texts=())
BROKEN = replace(MUL, name="triton_poi_fused_2", configs=(), texts=(), error="CompilationError: at 3:4")


def _report(*kernels: Kernel) -> Report:
    return Report("2.13", "3.11", "inspect", (replace(training_target(), kernels=kernels),))


REPORT = _report(SUM, CALL, MUL, AGAIN, BROKEN)


def test_one_text_stands_alone() -> None:
    assert kernel_code(REPORT, "sum_0", ("ptx",)) == ".version 8.7\n"


def test_several_are_told_apart_in_their_own_language() -> None:
    assert kernel_code(_report(SUM, MUL, AGAIN), None, ("ptx",)) == (
        "// triton_red_fused_sum_0, forward, sm_90, ptx\n.version 8.7\n\n"
        "// triton_poi_fused_mul_1, forward, sm_90, ptx\n.version 8.6\n\n"
    )


def test_without_a_language_it_is_tritons_below_the_figures() -> None:
    assert kernel_code(REPORT, "sum", ()) == (
        "# triton_red_fused_sum_0, forward, sm_90\n"
        "#   XBLOCK=1024 warps=4 stages=1, 8 blocks: 32 registers, 0 B spills, 16 B shared,"
        " occupancy 50% by registers\n"
        "#   XBLOCK=8 warps=4 stages=1, as many blocks as the data needs: 32 registers, 0 B spills,"
        " 16 B shared, occupancy 50% by registers\n"
        "import triton\n\n"
    )


@pytest.mark.parametrize(
    ("name", "language", "message"),
    [
        ("triton_poi_fused_mul_3", "ptx", "nearest: triton_poi_fused_mul_1"),
        (
            "fused_2",
            "ptx",
            "no ptx of `triton_poi_fused_2`, which was not compiled: CompilationError: at 3:4",
        ),
        (
            "mul_1",
            "sass",
            "no sass of `triton_poi_fused_mul_1`: Triton's disassembler here does not support sm_90",
        ),
    ],
)
def test_what_is_not_there(name: str, language: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        kernel_code(REPORT, name, (language,))


def test_a_report_with_library_calls_alone() -> None:
    with pytest.raises(UserError, match="no kernel was generated"):
        kernel_code(_report(CALL), None, ("ptx",))


def test_languages() -> None:
    assert tuple(parse_languages("all")) == ("triton", "ttir", "ttgir", "llir", "ptx", "sass")
    with pytest.raises(UserError, match="unknown kernel language 'asm'; known are triton, ttir"):
        tuple(parse_languages("ptx,asm"))
