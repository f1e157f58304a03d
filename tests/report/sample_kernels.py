"""The sample report with kernels for a GPU: configurations, times and costs by line."""

from dataclasses import replace

from aotlens.model import (
    Kernel,
    Report,
)
from aotlens.model.kernels import (
    KernelAccess,
    KernelConfig,
    KernelShare,
    KernelText,
    LineCost,
    PhaseCost,
    Unfused,
)
from tests.report.sample import sample_report
from tests.report.sample_graph import span

PLAIN_CONFIG = KernelConfig(
    blocks={"XBLOCK": 1024},
    warps=4,
    stages=1,
    registers=32,
    frame_bytes=0,
    spill_bytes=0,
    shared_bytes=0,
    grid=(8448, 1, 1),
    occupancy=1.0,
    limit="warps",
    waves=4.0,
)
"""Nothing about it gives cause for a finding."""


CHOSEN_CONFIG = KernelConfig({"XBLOCK": 256}, 4, 1, 40, 64, 48, 2048, (8, 1, 1), 0.75, "registers", 0.06)


OTHER_CONFIG = KernelConfig({"XBLOCK": 128}, 4, 1, 32, 0, 0, 0, (16, 1, 1), 1.0, "warps", 0.1)


def gpu_sample() -> Report:
    """The sample with one kernel that is launched twice, and one library call."""
    report = sample_report()
    target = report.targets[0]
    spans = (span("hidden.sigmoid()"), span("hidden * hidden.sigmoid()"))
    launched = Kernel(
        *("triton_poi_fused_mul_sigmoid_0", "forward", "sm_90", "import triton", ("sigmoid", "mul_1"), spans),
        registers=40,
        spill_bytes=48,
        shared_bytes=2048,
        configs=(CHOSEN_CONFIG, OTHER_CONFIG),
        texts=(KernelText("ptx", ".version 8.7"), KernelText("sass", "MOV R1, c[0x0][0x28]")),
        bytes_moved=24576,
        floor_us=0.5,
        bound="memory",
        call=1,
        shares=(
            KernelShare(spans[0], 8192, 0, 2048, 0.2),
            KernelShare(spans[1], 8192, 8192, 2048, 0.3),
        ),
        accesses=(KernelAccess("addmm", False, 8192, 16384, spans[0]),),
    )
    apart = Unfused(
        *("triton_poi_fused_mul_sigmoid_0", 1, "mul_1", 8192, True),
        *("steps", "the other one has to be finished first", "", spans[1]),
    )
    again = replace(launched, texts=(), floor_us=1.5, call=2, unfused=(apart,))
    library = Kernel("extern_kernels.addmm", "forward", "sm_90", "", ("addmm",), (), kind="library")
    line = LineCost(spans[1], 2, 0, 16384, 8192, 4096, 2.0)
    total = PhaseCost("forward", "sm_90", 2, 1, 32768, 16384, 8192, 2.0, 1)
    gpu = replace(target, kernels=(library, launched, again), gpu_lines=(line,), gpu_totals=(total,))
    return replace(report, targets=(gpu, *report.targets[1:]))
