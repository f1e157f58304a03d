"""Triton kernels of a log are compiled for a GPU from rebuilt text; no other text of a log is ever run.

`logs/net-h100` (inference) and `logs/net-h100-training` are written by `scripts/trace/gpu_log.py`: torch's
own logs, from an emulated GPU.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from aotlens.errors import UserError
from aotlens.model.report import Kernel, Report, Target
from aotlens.trace.build import build_report
from aotlens.trace.gpu.kernel_text import kernel_text
from aotlens.trace.logs.reader import open_trace
from tests.command import aotlens

LOG = Path(__file__).parent / "logs" / "net-h100"
TRAINING = Path(__file__).parent / "logs" / "net-h100-training"
ROWS = 65536
BODY = "x = tl.load(in_ptr0 + tl.program_id(0) * XBLOCK)"


@pytest.fixture(scope="module")
def report() -> Report:
    return build_report(open_trace(LOG), "test")


def kernels_of(report: Report) -> tuple[Kernel, ...]:
    return report.targets[0].kernels


def definition(body: str = BODY, *, meta: str = "", before: str = "", decorator: str = "pointwise") -> str:
    """Return one kernel as Inductor's module defines it."""
    lines = "\n    ".join(body.split("\n"))
    text = f"""
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
{before}
@triton_heuristics.{decorator}(
    size_hints={{'x': 64}},
    filename=__file__,
    triton_meta={{'signature': {{'in_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}}}},
    inductor_meta={{'grid_type': 'Grid1D', 'kernel_name': 'k'{meta}}},
)
@triton.jit
def k(in_ptr0, xnumel, XBLOCK : tl.constexpr):
    {lines}
"""
    return f"k = async_compile.triton('k', {text!r}, device_str='cuda')"


def test_kernels_stand_at_the_lines_of_the_log(report: Report) -> None:
    rows = [(row.name, row.target, [span.line for span in row.spans]) for row in kernels_of(report)]
    assert rows[0] == ("triton_per_fused_native_layer_norm_0", "cuda", [21])
    assert rows[1] == ("extern_kernels.mm", "cuda", [21])
    assert rows[9] == ("triton_poi_fused_add_addmm_native_dropout_3", "cuda", [36, 22])


def test_bytes_and_operations_follow_from_the_buffers_of_each_call(report: Report) -> None:
    norm, product = kernels_of(report)[:2]
    assert (norm.bytes_read, norm.bytes_written) == (4 * (ROWS * 16 + 16 + 16), 4 * ROWS * 16)
    assert (product.bytes_read, product.bytes_written) == (4 * (ROWS * 16 + 16 * 32), 4 * ROWS * 32)
    assert product.flops == 2 * ROWS * 16 * 32


def test_every_kernel_of_the_log_is_in_the_subset(report: Report) -> None:
    sources = {row.name: row.source for row in kernels_of(report) if row.name.startswith("triton_")}
    texts = [kernel_text(source) for source in sources.values()]
    assert [text.name for text in texts] == list(sources)
    assert all(text.has_grid for text in texts)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("import os", "the statement `import os`"),
        ("os.system('true')", "`os.system('true')`|attribute `.system`"),
        ("open('/etc/passwd')", "the name `open`"),
        ("__import__('os')", "the name `__import__`"),
        ("eval('1')", "the name `eval`"),
        ("tl.core.sys.exit(1)", "`tl.core.sys.exit`"),
        ("x = tl.core", "`tl.core`"),
        ("triton_helpers.set_driver_to_cpu()", "`triton_helpers.set_driver_to_cpu`"),
        ("triton.runtime.driver.active", "the statement|`triton.runtime"),
        ("x = in_ptr0.__class__", "the attribute `.__class__`"),
        ("x = (1).__class__.__bases__", "the attribute `.__bases__`"),
        ("x = XBLOCK.value", "the attribute `.value`"),
        ("x = [y for y in (1, 2)]", "is not in the Triton subset"),
        ("x = lambda: 0", "`lambda: 0`"),
        ("x = f'{in_ptr0}'", "is not in the Triton subset"),
        ("x = 'a' * 1000000000", "arithmetic with a string"),
        ("x = 2 ** 1000000", "is not in the Triton subset"),
        (f"x = {1 << 70}", "the constant"),
        ("x = b'bytes'", "the constant"),
        ("tl = in_ptr0", "the variable `tl`"),
        ("range = in_ptr0", "the variable `range`"),
        ("in_ptr0.data = 1", "an assignment to `in_ptr0.data`"),
        ("x = tl.load(*in_ptr0)", "is not in the Triton subset"),
        ("x = tl.load(**in_ptr0)", "a call with ** arguments"),
        ("tl.static_print('x')", "`tl.static_print`"),
        ("tl.extra.cuda.libdevice.exp(in_ptr0)", "`tl.extra"),
        ("x = tl.inline_asm_elementwise('.file 1 \"/etc\"', '=r', [in_ptr0])", "other text than plain"),
        ("x = tl.inline_asm_elementwise", "`tl.inline_asm_elementwise`"),
        ("def g():\n    pass", "the statement `def g"),
        ("try:\n    pass\nfinally:\n    pass", "the statement `try"),
        ("with in_ptr0:\n    pass", "the statement `with"),
        ("global x", "the statement `global x`"),
        ("for x in in_ptr0:\n    pass", "the statement `for"),
        ("x: print('annotation') = 1", "the statement"),
    ],
)
def test_an_unsupported_construct_is_named(body: str, what: str) -> None:
    with pytest.raises(UserError, match="of the kernel: ") as error:
        kernel_text(definition(body))
    assert any(each in str(error.value) for each in what.split("|"))


@pytest.mark.parametrize(
    ("before", "what"),
    [
        ("import os", "`import os`"),
        ("import os as tl", "`import os as tl`"),
        ("from os import system as libdevice", "`from os import system as libdevice`"),
        ("from torch._inductor.runtime import *", "is not in the Triton subset"),
        ("print('hello')", "the statement `print('hello')`"),
        ("X = print('hello')", "the constant"),
        ("range = 1", "the name `range`"),
        ("class A:\n    pass", "the statement `class A"),
        ("@print\n@triton.jit\ndef helper(x):\n    return x", "the function `helper` with @print"),
        ("@triton.jit\ndef helper(x=print('hello')):\n    return x", "the constant"),
        ("@triton.jit\ndef helper(x: print('hello')):\n    return x", "the annotation"),
        ("@triton.jit\ndef helper(*x):\n    return x", "* or ** arguments"),
    ],
)
def test_a_module_has_functions_and_constants_only(before: str, what: str) -> None:
    with pytest.raises(UserError, match="Triton subset") as error:
        kernel_text(definition(before=before))
    assert what in str(error.value)


@pytest.mark.parametrize(
    "meta",
    [
        ", 'tiling_scores': {'x': __import__('os')}",
        ", 'tiling_scores': {**{}}",
        ", 'mutated_arg_names': ['__import__(\"os\")']",
        ", 'config_args': {'XBLOCK': 'print(1)'}",
        ", **{'min_xblock': 1}",
    ],
)
def test_a_setting_is_a_literal_and_no_python_text(meta: str) -> None:
    with pytest.raises(UserError, match="Triton subset"):
        kernel_text(definition(meta=meta))


def test_a_decorator_that_is_not_inductors_is_unsupported() -> None:
    with pytest.raises(UserError, match=r"the decorator `triton_heuristics\.cached_autotune`"):
        kernel_text(definition(decorator="cached_autotune"))


def test_text_that_torch_would_evaluate_is_dropped() -> None:
    grid = "{'python': ['print(1)', '1', '1']}"
    meta = f", 'precomputed_grids': [{grid}], 'extra_launcher_args': ['print(1)']"
    text = kernel_text(definition(meta=meta))
    assert "print" not in text.source
    assert text.has_grid
    text = kernel_text(definition().replace("Grid1D", "PrecomputedGrid"))
    assert "'grid_type': 'FixedGrid'" in text.source
    assert not text.has_grid


@pytest.mark.parametrize(
    "text",
    ["", "k = 3", "k = async_compile.cpp('k', 'x')", "k = async_compile.triton('k', '(((')", "(" * 5000],
)
def test_what_is_no_kernel_is_an_error(text: str) -> None:
    with pytest.raises(UserError, match="log"):
        kernel_text(text)


def test_deep_nesting_is_unsupported() -> None:
    with pytest.raises(UserError):
        kernel_text(definition("x = " + "-" * 5000 + "1"))


@pytest.mark.rotates
def test_registers_and_occupancy_come_from_compiling_the_logged_text(report: Report) -> None:
    """It compiles one kernel, which takes 2 s."""
    pytest.importorskip("triton")
    from functools import partial

    from aotlens.codegen.gpu.records import GpuRequest
    from aotlens.model.gpus.names import find_target
    from aotlens.trace.gpu.recompile import recompiled
    from aotlens.trace.kernels import Codes
    from aotlens.trace.output_code import parse_code

    process = open_trace(LOG).processes[0]
    record = process.compilations[0].last("inductor_output_code")
    assert record is not None
    codes: Codes = {"inference": parse_code(process.text(record), {})}
    compile_rows = partial(recompiled, request=GpuRequest(find_target("h100"), {}, ("ptx",), 120.0))
    norm, product = kernels_of(report)[:2]
    hostile = definition("print('owned')")
    broken = Kernel("k", "inference", "cuda", hostile, (), (), call=2)
    norm, product, broken = compile_rows((norm, product, broken), codes)
    assert (norm.error, norm.target) == ("", "sm_90")
    assert norm.registers is not None
    assert norm.registers > 0
    config = norm.configs[0]
    assert config.grid == (ROWS // config.blocks["XBLOCK"], 1, 1)
    assert [text.language for text in norm.texts] == ["ptx"]
    assert (product.registers, product.target, product.bound) == (None, "sm_90", "memory")
    assert product.floor_us is not None
    assert broken.error == (
        "not compiled for sm_90: line 14 of the kernel: the name `print` is not in the Triton subset"
    )


@pytest.fixture(scope="module")
def training() -> Target:
    (target,) = build_report(open_trace(TRAINING), "test").targets
    return target


def test_kernels_of_a_training_step_stand_at_their_lines(training: Target) -> None:
    lines = {
        (row.phase, row.name): sorted({span.line for span in row.spans})
        for row in training.kernels
        if row.name.startswith("triton_")
    }
    assert lines["forward", "triton_per_fused_native_layer_norm_0"] == [21]
    assert lines["forward", "triton_poi_fused_add_addmm_native_dropout_3"] == [22, 36]
    assert lines["forward", "triton_poi_fused_add_copy__4"] == [33]
    assert lines["backward", "triton_red_fused_sum_0"] == [37]
    assert lines["backward", "triton_poi_fused_add_native_dropout_backward_view_2"] == [36, 37]
    assert lines["backward", "triton_poi_fused_gelu_gelu_backward_5"] == [21]
    phases = Counter(row.phase for row in training.kernels)
    assert phases == {"forward": 12, "backward": 29}
    assert [row.name for row in training.kernels if not row.spans] == ["aten.randint.low_out"]


def test_each_side_of_a_training_step_has_its_graphs_and_saved_values(training: Target) -> None:
    assert [stage.name for stage in training.stages] == [
        "captured",
        "joint",
        "forward",
        "backward",
        "post-grad",
        "post-grad backward",
    ]
    assert training.partition is not None
    largest = max(training.partition.saved, key=lambda value: value.bytes)
    assert largest.span is not None
    assert (largest.node, largest.bytes, largest.span.line) == ("addmm", 4 * ROWS * 32, 21)
    assert sum(value.bytes for value in training.partition.saved) == training.partition.saved_bytes


def test_kernels_of_the_backward_are_in_the_subset(training: Target) -> None:
    sources = {row.name: row.source for row in training.kernels if row.name.startswith("triton_")}
    assert [kernel_text(source).name for source in sources.values()] == list(sources)
    assert len(sources) == 15


def test_the_slowest_kernel_of_the_backward_is_named_at_its_line() -> None:
    """The bytes decide, so no kernel has to be compiled for the GPU."""
    kernels = build_report(open_trace(TRAINING), "test").targets[0].kernels
    backward = [row for row in kernels if row.phase == "backward" and row.bytes_moved is not None]
    slowest = max(backward, key=lambda row: row.bytes_moved or 0)
    assert slowest.name == "triton_poi_fused_gelu_gelu_backward_5"
    assert slowest.bytes_moved == 3 * 4 * ROWS * 32
    assert [span.line for span in slowest.spans] == [21]


@pytest.mark.rotates("all")
def test_every_kernel_of_a_training_step_is_compiled() -> None:
    """It compiles 15 kernels, which takes 15 s."""
    pytest.importorskip("triton")
    ended = aotlens("inspect", TRAINING, "--gpu", "h100", "--format", "json")
    assert ended.code == 0, ended.err
    (target,) = json.loads(ended.out)["targets"]
    generated = [row for row in target["kernels"] if row["name"].startswith("triton_")]
    assert [row["name"] for row in generated if row["error"] or not row["registers"]] == []
    backward = [row for row in generated if row["phase"] == "backward"]
    slowest = max(backward, key=lambda row: row["floor_us"])
    assert slowest["name"] == "triton_poi_fused_gelu_gelu_backward_5"
    text = aotlens("inspect", TRAINING, "--gpu", "h100").out
    below = text.partition("\n  backward ")[2]
    assert "triton_poi_fu…gelu_gelu_backward_5" in below
    assert "21: functional.gelu(self.up(self.norm(x)))" in below


def test_a_gpu_that_does_not_exist_is_an_error() -> None:
    ended = aotlens("inspect", LOG, "--gpu", "h1000")
    assert ended.code == 2
    assert "unknown GPU 'h1000'" in ended.err


REAL = Path(__file__).parent / "logs" / "net-real-h100-training"
"""Written by torch 2.11 for the same training step on an H100."""


def test_the_emulated_gpu_gets_the_kernels_of_a_real_one() -> None:
    real, emulated = (
        [(row.name, row.phase, [span.line for span in row.spans]) for row in kernels_of(report)]
        for report in (build_report(open_trace(log), "test") for log in (REAL, TRAINING))
    )
    assert len(real) == 41
    assert real == emulated
