"""Kernels and memory are read from the text of generated code, for a CPU and for a GPU."""

from pathlib import Path

import pytest

from aotlens.model.report import Report
from aotlens.trace.build import build_report
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.output_code import parse_code
from tests.trace.log_text import compiled, record

LOGS = Path(__file__).parent / "logs"

TRITON = """# AOT ID: ['0_inference']
import triton
# Topologically Sorted Source Nodes: [y, z], Original ATen: [aten.sin, aten.mul]
triton_poi_fused_mul_sin_0 = async_compile.triton('triton_poi_fused_mul_sin_0', '''
@triton.jit
def triton_poi_fused_mul_sin_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')


async_compile.wait(globals())

def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (64, 64), (64, 1))
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((64, 64), (64, 1), torch.float32)
        # Topologically Sorted Source Nodes: [y, z], Original ATen: [aten.sin, aten.mul]
        stream0 = get_raw_stream(0)
        triton_poi_fused_mul_sin_0.run(arg0_1, buf0, 4096, stream=stream0)
        del arg0_1
        buf1 = empty_strided_cuda((64, 64), (64, 1), torch.bfloat16)
        # Topologically Sorted Source Nodes: [w], Original ATen: [aten.mm]
        extern_kernels.mm(buf0, buf0, out=buf1)
        buf2 = buf0; del buf0  # reuse
        triton_poi_fused_mul_sin_0.run(buf1, buf2, 4096, stream=stream0)
        del buf2
    return (buf1, )
"""
CAPTURED = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[64, 64][64, 1]cuda:0"):
        l_x_ = L_x_
        # File: /home/u/net.py:4 in f, code: y = x.sin()
        y: "f32[64, 64][64, 1]cuda:0" = l_x_.sin();  l_x_ = None
        # File: /home/u/net.py:5 in f, code: z = y * 2
        z: "f32[64, 64][64, 1]cuda:0" = y * 2;  y = None
        # File: /home/u/net.py:6 in f, code: w = z @ z
        w: "f32[64, 64][64, 1]cuda:0" = z @ z;  z = None
        return (w,)
"""
INFERENCE = """class <lambda>(torch.nn.Module):
    def forward(
        self,
        arg0_1: "f32[64, 64][64, 1]cuda:0",  # PlainAOTInput(idx=0)
    ):
        # File: /home/u/net.py:4 in f, code: y = x.sin()
        sin: "f32[64, 64][64, 1]cuda:0" = torch.ops.aten.sin.default(arg0_1);  arg0_1 = None
        # File: /home/u/net.py:6 in f, code: w = z @ z
        mm: "f32[64, 64][64, 1]cuda:0" = torch.ops.aten.mm.default(sin, sin);  sin = None
        return (
            mm,  # PlainAOTOutput(idx=0)
        )
"""


def gpu_report(folder: Path, *, with_code: bool = True) -> Report:
    metrics = {
        "co_name": "f",
        "cudagraph_skip_reason": "skipping cudagraphs due to mutated inputs (1 instances)",
    }
    text = (
        record("dynamo_start", {"stack": []}, None, **compiled())
        + record("dynamo_output_graph", {"sizes": {}}, CAPTURED, **compiled())
        + record("aot_inference_graph", {}, INFERENCE, **compiled())
        + (
            record("inductor_output_code", {"filename": "/tmp/c.py"}, TRITON, **compiled())
            if with_code
            else ""
        )
        + record("compilation_metrics", metrics, None, **compiled())
    )
    (folder / "a.log").write_text(text)
    return build_report(open_trace(folder / "a.log"), "test")


def test_triton_kernels_have_lines_sources_and_devices(tmp_path: Path) -> None:
    kernels = gpu_report(tmp_path).targets[0].kernels
    assert [(row.name, row.kind, [span.line for span in row.spans]) for row in kernels] == [
        ("triton_poi_fused_mul_sin_0", "generated", [4, 5]),
        ("extern_kernels.mm", "library", [6]),
        ("triton_poi_fused_mul_sin_0", "generated", [4, 5]),
    ]
    assert kernels[0].target == "cuda"
    assert "@triton.jit" in kernels[0].source


def test_memory_follows_allocations_reuse_and_deletion() -> None:
    code = parse_code(TRITON, {})
    assert [(step.name, step.bytes) for step in code.steps] == [
        ("buf0", 16384),
        ("triton_poi_fused_mul_sin_0", 16384),
        ("buf1", 24576),
        ("extern_kernels.mm", 24576),
        ("triton_poi_fused_mul_sin_0", 24576),
    ]
    assert (code.peak_bytes, code.peak_step, code.returned_bytes) == (24576, "buf1", 8192)
    assert [(row.name, row.last) for row in code.live_at_peak] == [
        ("buf0", "triton_poi_fused_mul_sin_0"),
        ("buf1", None),
    ]


def test_a_saved_value_is_given_back_where_the_backward_deletes_it() -> None:
    text = "def call(args):\n    addmm, = args\n    buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)\n"
    text += "    extern_kernels.mm(addmm, addmm, out=buf0)\n    del addmm\n    return (buf0, )\n"
    code = parse_code(text, {}, {"addmm": 64})
    assert [step.bytes for step in code.steps] == [80, 80]
    assert code.returned_bytes == 16


def test_a_size_without_a_value_leaves_memory_unknown() -> None:
    text = (
        "def call(args):\n    buf0 = empty_strided_cpu((u0, ), (1, ), torch.float32)\n    return (buf0, )\n"
    )
    assert not parse_code(text, {}).is_known
    assert parse_code(text.replace("u0", "s0"), {"s0": 5}).steps[0].bytes == 20


def test_memory_without_generated_code_is_that_of_the_graphs(tmp_path: Path) -> None:
    memory = gpu_report(tmp_path, with_code=False).targets[0].memory
    assert memory is not None
    assert memory.curve == (("sin", 16384), ("mm", 32768))
    assert [(row.node, row.kind, row.last) for row in memory.live_at_peak] == [
        ("sin", "temporary", "mm"),
        ("mm", "result", None),
    ]
    assert memory.held_bytes == 16384


def test_why_cuda_graphs_were_skipped(tmp_path: Path) -> None:
    cuda_graph = gpu_report(tmp_path).targets[0].cuda_graph
    assert cuda_graph is not None
    assert (cuda_graph.verdict, cuda_graph.blockers[0].kind) == ("not_recorded", "written_argument")
    assert "mutated inputs" in cuda_graph.blockers[0].reason


@pytest.mark.parametrize("log", ["net-aot_eager", "net-inductor"])
def test_the_curve_covers_forward_and_backward(log: str) -> None:
    report = build_report(open_trace(LOGS / log), "test", "0/0")
    target = report.targets[0]
    assert target.memory is not None
    assert target.partition is not None
    assert max(size for _, size in target.memory.curve) == target.memory.peak_bytes
    assert sum(row.bytes for row in target.memory.live_at_peak) == target.memory.peak_bytes
    assert target.memory.held_bytes >= target.partition.saved_bytes
    assert 0 < target.memory.forward_nodes < len(target.memory.curve)
