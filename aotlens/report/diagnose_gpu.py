"""Findings about kernels for a GPU, from the rows of the report.

Invariant: one finding for a kernel however often it is launched (a loop over layers), at the expression that
it computes; kernels that run on this machine's CPU have none.
"""

from collections.abc import Iterator
from itertools import groupby

from aotlens.report.diagnose_traffic import TRAFFIC_CHECKS
from aotlens.report.findings import Check, Limits, kernel_cost
from aotlens.report.kernel_totals import gpu_kernels
from aotlens.report.places import quoted
from aotlens.report.records import Diagnostic, Kernel, KernelConfig, Related, Severity, Span, Stage, Target
from aotlens.report.summary import human_bytes

HALF_RATE_F64 = frozenset({"sm_70", "sm_80", "sm_90", "sm_100"})
"""Where f64 has half of f32's lanes; 1/32 to 1/64 everywhere else."""
DOUBLE = frozenset({"f64", "c128"})
MATRIX_PRODUCT = "tl.dot"
"""In the source of a kernel that uses the matrix units."""

CAUSES: dict[str, str] = {
    "registers": "registers run out first{figure}; keep fewer values alive at once in this expression",
    "shared memory": "shared memory runs out first{figure}; reduce over fewer values at once",
    "warps": "its blocks are too large for a second one to fit",
    "blocks": "its blocks have too few threads",
}
"""What limits the occupancy, and what helps."""


def _on_gpu(target: Target) -> Iterator[tuple[Kernel, int]]:
    """Each kernel for a GPU, the launch that fills most of it, and how often it is launched."""
    launched = sorted(gpu_kernels(target.kernels), key=_identity)
    for _, group in groupby(launched, _identity):
        launches = list(group)
        yield max(launches, key=_fill), len(launches)


def _fill(kernel: Kernel) -> float:
    return kernel.configs[0].waves or 0.0 if kernel.configs else 0.0


def _identity(kernel: Kernel) -> tuple[str, str, str]:
    return kernel.target, kernel.phase, kernel.name


def register_spills(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL601: registers that go through memory."""
    for kernel, launches in _on_gpu(target):
        if kernel.spill_bytes and kernel.spill_bytes >= limits.least_spill_bytes:
            severity: Severity = "warning" if kernel.spill_bytes >= limits.spill_bytes else "information"
            has = f" beside its {kernel.registers} registers" if kernel.registers else ""
            message = (
                f"{_called(kernel, launches)} spills registers on {kernel.target}: each thread moves"
                f" {human_bytes(kernel.spill_bytes)} through memory for values that do not fit{has}"
            )
            yield _at(kernel, target, "AL601", severity, message)


def low_occupancy(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL602: too few warps to hide what they wait for."""
    for kernel, launches in _on_gpu(target):
        chosen = kernel.configs[0] if kernel.configs else None
        if chosen is None or chosen.occupancy >= limits.occupancy or MATRIX_PRODUCT in kernel.source:
            continue
        if chosen.waves is not None and chosen.waves < 1:
            continue  # the launch is too small to fill the GPU, whatever its blocks take
        message = (
            f"{_called(kernel, launches)} keeps {100 * chosen.occupancy:.0f} % of the warps that"
            f" {kernel.target} can hold: {_cause(chosen)}"
        )
        yield _at(kernel, target, "AL602", "information", message)


def _cause(config: KernelConfig) -> str:
    """What keeps it from more, with how much of that it takes."""
    taken = {
        "registers": f", {config.registers} a thread",
        "shared memory": f", {human_bytes(config.shared_bytes)} a block",
    }
    return CAUSES[config.limit].format(figure=taken.get(config.limit, ""))


def double_precision(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL603: f64 on a GPU, at the expressions where it begins."""
    kernels = gpu_kernels(target.kernels)
    names = ("forward", "inference", "backward") if kernels else ()
    for stage in filter(None, map(target.stage, names)):
        first = _where_doubles_begin(stage)
        for span, name in first.items():
            kernel = next((row for row in kernels if row.phase == stage.name and name in row.nodes), None)
            if kernel is not None:
                yield _double(kernel, span)
        if first:
            return  # a backward is as precise as what it differentiates


def _where_doubles_begin(stage: Stage) -> dict[Span, str]:
    """The expressions that compute f64 from nothing that was computed in f64, with their nodes."""
    doubles = {
        node.name: node
        for node in stage.nodes
        if node.op == "call_function" and node.tensor is not None and node.tensor.dtype in DOUBLE
    }
    begin = [node for node in doubles.values() if node.spans and doubles.keys().isdisjoint(node.inputs)]
    return {node.spans[0]: node.name for node in reversed(begin)}


def _double(kernel: Kernel, span: Span) -> Diagnostic:
    half = kernel.target in HALF_RATE_F64
    rate = "half" if half else "a small part, 1/32 to 1/64,"
    what = quoted(span)
    message = (
        f"{what} computes in f64 on {kernel.target}, and so does what follows from it (first in kernel"
        f" `{kernel.name}`): twice the bytes of f32, and {rate} of its rate"
    )
    return Diagnostic("AL603", "information" if half else "warning", message, span)


def failed_kernels(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL606: no code."""
    for kernel, launches in _on_gpu(target):
        if kernel.error:
            why = kernel.error.strip().splitlines()[-1]
            message = f"{_called(kernel, launches)} could not be compiled for {kernel.target}: {why}"
            yield _at(kernel, target, "AL606", "error", message)


def _called(kernel: Kernel, launches: int) -> str:
    """The kernel by name and phase: ``kernel `triton_poi_fused_mul_0` (backward, 12 launches)``."""
    often = f", {launches} launches" if launches > 1 else ""
    return f"kernel `{kernel.name}` ({kernel.phase}{often})"


def _at(kernel: Kernel, target: Target, code: str, severity: Severity, message: str) -> Diagnostic:
    """At its costliest expression, the next three related; at the target where none is."""
    if not kernel.spans:
        return Diagnostic(code, severity, message, target.span, cost=kernel_cost(target, kernel))
    first, *others = kernel.spans
    related = tuple(Related(span, "computed by the same kernel") for span in others[:3])
    return Diagnostic(code, severity, message, first, related, (), kernel_cost(target, kernel))


GPU_CHECKS: tuple[Check, ...] = (
    register_spills,
    low_occupancy,
    double_precision,
    failed_kernels,
    *TRAFFIC_CHECKS,
)
