"""Family AL6: kernels for a GPU, and what they move through memory without need."""

from collections.abc import Iterator
from itertools import groupby

from aotlens.diagnostics.findings import Check, Limits, kernel_cost
from aotlens.diagnostics.rule import Rule
from aotlens.model.gpus.architectures import ARCHITECTURES
from aotlens.model.report import (
    Diagnostic,
    Kernel,
    KernelAccess,
    KernelConfig,
    Related,
    Severity,
    Span,
    Stage,
    Target,
)
from aotlens.model.spans import quoted, text_of
from aotlens.view.kernels import gpu_kernels
from aotlens.view.quantities import human_bytes, percent

RULES: tuple[Rule, ...] = (
    Rule(
        "AL601",
        "A kernel spills registers",
        "warning",
        "The kernel has more live values than a thread has registers, so the compiler writes some to"
        " memory and reads them back. Reported from 32 bytes per thread on, as a warning from 128 bytes"
        " on. Local arrays of a function (the slow path of `sin` for large arguments) are not spills.",
        "Memory traffic in the middle of arithmetic, for every thread. It mostly hits the L1 cache, and"
        " displaces other data there.",
        "Reduce the live values of one expression: reduce fewer terms together, split a long chain by"
        " storing an intermediate value, or use a smaller block if the report lists a configuration"
        " without spills.",
        "def mix(x, y):  # f64[76, 1048576] each\n    parts = [torch.exp(row) for row in x.unbind(0)]\n"
        "    total = sum(parts) + sum(y.unbind(0))\n"
        "    return sum(p * q / total for p, q in zip(parts, y.unbind(0)))",
    ),
    Rule(
        "AL602",
        "A kernel has low occupancy",
        "information",
        "A multiprocessor holds several warps and switches between them while some wait for memory. Here"
        " fewer than a quarter fit: the finding names what runs out first (registers, shared memory,"
        " warps, blocks). Matrix products, which use few warps with many registers, and launches too small"
        " to fill the GPU are not reported.",
        "Memory latency is not hidden, because there is little else to run. How much time this costs is"
        " not known without a run.",
        "Registers: use fewer live values in one expression. Shared memory: reduce over fewer values at"
        " once. Blocks: use more elements per block. Compare the other configurations that the report"
        " lists.",
        "def mix(x):  # f32[64, 1048576]\n    total = sum(torch.sin(x[i]) for i in range(64))\n"
        "    return torch.stack([torch.sin(x[i]) / total for i in range(64)])",
    ),
    Rule(
        "AL603",
        "Double precision on a GPU",
        "warning",
        "The expression computes in `float64` on a GPU target. Usually the dtype comes from a NumPy array,"
        " `.double()`, or a tensor created under another default dtype.",
        "Twice the bytes of `float32`; arithmetic at half of its rate on data-centre GPUs (V100, A100, H100,"
        " B200: information) and at 1/32 to 1/64 on all others (warning).",
        "Convert inputs (`torch.from_numpy(a).float()`), and create constants in the dtype of the data. If"
        " a sum needs more than `float32`, compute only that sum in `float64`.",
        "def loss(x, mean):  # mean: f64[512]\n    return ((x - mean) ** 2).mean()",
        "def loss(x, mean):\n    return ((x - mean.to(x.dtype)) ** 2).mean()",
    ),
    Rule(
        "AL604",
        "An operator splits what a GPU could do in one pass",
        "information",
        "Elementwise work precedes and follows an operator that runs as a library call (a sort, a"
        " selection, a Fourier transform, a custom operator). Nothing is fused into such a call, so one"
        " kernel writes its input to memory and another kernel reads its output. Reported from 4 MiB per"
        " call on; matrix products, convolutions and attention, whose own work dominates, are not"
        " reported.",
        "The values on both sides are written and read once more than the operator itself needs.",
        "Move elementwise work to the other side if the result is the same: a monotonic function (`relu`"
        " before `sort`) can follow the operator and is then fused with the work there; work after a"
        " selection of few values is cheap. If only part of a sorted output is used, `topk` or `amax`"
        " avoids most of the work.",
        "def ranks(x):  # f32[64, 65536]\n    return x.relu().sort(-1).values * 2",
        "def ranks(x):\n    return x.sort(-1).values.relu() * 2",
    ),
    Rule(
        "AL605",
        "Scattered elements multiply the traffic",
        "warning",
        "A kernel reads elements that share few of their 32-byte sectors: every eighth column, one field"
        " of an array of structures, elements at arbitrary indices. Memory is read in whole sectors, so"
        " the bytes in between are read and not used. Reported if the traffic is at least twice what is"
        " needed and at least 4 MiB more. A transposed read is not reported: kernels read it block by"
        " block and use whole sectors. For data-dependent indices the figure is an upper bound, and the"
        " finding is information.",
        "Time: memory traffic determines the speed of such kernels.",
        "Store together what is read together: change the order of dimensions where the tensor is created,"
        " make one `contiguous()` copy of a tensor that is read several times, or gather rows instead of"
        " single elements.",
        "def field(points):  # f32[4194304, 8]\n    return points[:, 0].exp()",
        "def field(points):  # f32[8, 4194304]\n    return points[0].exp()",
    ),
    Rule(
        "AL606",
        "A kernel could not be compiled for the GPU",
        "error",
        "Triton could not compile a kernel for the GPU that `--gpu` names, or exceeded its time limit. The"
        " other kernels are shown; this one has no figures.",
        "The cost of the kernel is unknown, and on that GPU it would fail.",
        "For a kernel of your own the message names its line. For a dtype that the GPU lacks (bfloat16"
        " before `sm_80`, float8 before `sm_89`), use another dtype or another GPU. `--kernel-time-limit`"
        " raises the time limit.",
        "def scaled(x):  # bf16, --gpu t4\n    return (x * 2).relu()",
        "def scaled(x):  # f16\n    return (x * 2).relu()",
    ),
)


POINTWISE = "triton_heuristics.pointwise"
"""In the source of a kernel that is elementwise."""

OWN_WORK = (
    "extern_kernels.",
    "attention",
    "convolution",
    "cudnn",
    "_mm",
    ".mm",
    "bmm",
    "addmm",
    "linear",
    "lstm",
    "gru",
)
"""Parts of the names of library calls whose cost is their own arithmetic."""


def split_work(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL604: elementwise kernels on both sides of a library call."""
    reported: set[Span] = set()
    kernels = gpu_kernels(target.kernels)
    for kernel in kernels:
        if not _is_between(kernel) or not kernel.spans or kernel.spans[0] in reported:
            continue
        calls = {other.call: other for other in kernels if other.phase == kernel.phase}
        before = _producers(kernel, calls)
        after = [other for other in _users(kernel, calls) if POINTWISE in other.source]
        read_bytes = sum(link.bytes for link in kernel.unfused if link.call in before)
        result_bytes = max((_bytes_read_from(other, kernel, calls) for other in after), default=0)
        if before and after and read_bytes + result_bytes >= limits.split_bytes:
            reported.add(kernel.spans[0])
            yield _split(kernel, [*before.values(), *after], read_bytes + result_bytes)


def _is_between(kernel: Kernel) -> bool:
    return kernel.kind == "library" and not any(part in kernel.name for part in OWN_WORK)


def _producers(kernel: Kernel, calls: dict[int, Kernel]) -> dict[int, Kernel]:
    """The elementwise kernels that write what a call reads."""
    producers = {link.call: calls[link.call] for link in kernel.unfused if link.is_produced}
    return {call: other for call, other in producers.items() if POINTWISE in other.source}


def _users(kernel: Kernel, calls: dict[int, Kernel]) -> list[Kernel]:
    """What reads a call's results, through further such calls too."""
    reached = {kernel.call}
    users = []
    for call in sorted(calls):
        other = calls[call]
        if any(link.is_produced and link.call in reached for link in other.unfused):
            if _is_between(other):
                reached.add(call)
            else:
                users.append(other)
    return users


def _bytes_read_from(user: Kernel, kernel: Kernel, calls: dict[int, Kernel]) -> int:
    """Return the bytes that a kernel reads of the results of library calls from this one on."""
    return sum(
        link.bytes
        for link in user.unfused
        if link.is_produced and link.call >= kernel.call and _is_between(calls[link.call])
    )


def _split(kernel: Kernel, beside: list[Kernel], moved: int) -> Diagnostic:
    span = kernel.spans[0]
    name = kernel.name.removeprefix("torch.ops.").removesuffix(".default")
    message = (
        f"`{text_of(span) or name}` runs as a library call on {kernel.target} (`{name}`, {kernel.phase}),"
        f" which cannot be fused: {human_bytes(moved)} between it and the elementwise work before and after"
        " it are written to memory and read again"
    )
    others = dict.fromkeys(other.spans[0] for other in beside if other.spans and other.spans[0] != span)
    related = tuple(Related(other, "elementwise work before or after it") for other in list(others)[:3])
    return Diagnostic("AL604", "information", message, span, related)


def scattered_reads(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL605: reads of scattered elements, once for each expression."""
    worst: dict[Span, tuple[int, KernelAccess, Kernel]] = {}
    for kernel in gpu_kernels(target.kernels):
        for access in kernel.accesses:
            extra = access.sector_bytes - access.bytes
            if access.written or access.span is None or extra < limits.sector_bytes:
                continue
            if access.sector_bytes < limits.sector_factor * access.bytes:
                continue
            known = worst.get(access.span)
            if known is None or extra > known[0]:
                worst[access.span] = extra, access, kernel
    for span, (_, access, kernel) in worst.items():
        yield _scattered(span, access, kernel)


def _scattered(span: Span, access: KernelAccess, kernel: Kernel) -> Diagnostic:
    severity: Severity = "information" if access.is_gather else "warning"
    what = quoted(span)
    most = "up to " if access.is_gather else ""
    where = "at data-dependent indices" if access.is_gather else "that are scattered in memory"
    message = (
        f"{what} reads {human_bytes(access.bytes)} {where}: on {kernel.target}"
        f" {most}{human_bytes(access.sector_bytes)} are read for it, because memory is read in sectors of"
        f" 32 bytes (kernel `{kernel.name}`, {kernel.phase})"
    )
    return Diagnostic("AL605", severity, message, span)


HALF_RATE_F64 = frozenset(entry.sm for entry in ARCHITECTURES if entry.f32_lanes == 2 * entry.f64_lanes)
"""GPUs with half of f32's lanes for f64; all others have 1/32 to 1/64."""
DOUBLE = frozenset({"f64", "c128"})
MATRIX_PRODUCT = "tl.dot"
"""In the source of a kernel that uses the matrix units."""

CAUSES: dict[str, str] = {
    "registers": "registers run out first{figure}; use fewer live values in this expression",
    "shared memory": "shared memory runs out first{figure}; reduce over fewer values at once",
    "warps": "its blocks are too large for a second one to fit",
    "blocks": "its blocks have too few threads",
}
"""The limits of the occupancy, each with its remedy."""


def _on_gpu(target: Target) -> Iterator[tuple[Kernel, int]]:
    """Yield each kernel for a GPU, its launch that fills the GPU most, and the number of its launches."""
    launched = sorted(gpu_kernels(target.kernels), key=_identity)
    for _, group in groupby(launched, _identity):
        launches = list(group)
        yield max(launches, key=_fill), len(launches)


def _fill(kernel: Kernel) -> float:
    """Return how often a launch fills the GPU; 0 where that is unknown."""
    return kernel.configs[0].waves or 0.0 if kernel.configs else 0.0


def _identity(kernel: Kernel) -> tuple[str, str, str]:
    return kernel.target, kernel.phase, kernel.name


def register_spills(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL601: registers that go through memory."""
    for kernel, launches in _on_gpu(target):
        if kernel.spill_bytes and kernel.spill_bytes >= limits.least_spill_bytes:
            severity: Severity = "warning" if kernel.spill_bytes >= limits.spill_bytes else "information"
            has = f" into its {kernel.registers} registers" if kernel.registers else ""
            message = (
                f"{_called(kernel, launches)} spills registers on {kernel.target}: each thread writes"
                f" {human_bytes(kernel.spill_bytes)} to memory for values that do not fit{has}"
            )
            yield _at(kernel, target, "AL601", severity, message)


def low_occupancy(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL602: too few warps to hide latency."""
    for kernel, launches in _on_gpu(target):
        chosen = kernel.configs[0] if kernel.configs else None
        if chosen is None or chosen.occupancy >= limits.occupancy or MATRIX_PRODUCT in kernel.source:
            continue
        if chosen.waves is not None and chosen.waves < 1:
            continue  # the launch is too small to fill the GPU, whatever its blocks take
        message = (
            f"{_called(kernel, launches)} has an occupancy of {percent(chosen.occupancy)} on"
            f" {kernel.target}: {_cause(chosen)}"
        )
        yield _at(kernel, target, "AL602", "information", message)


def _cause(config: KernelConfig) -> str:
    """Return the limit of the occupancy, and how much of that resource the kernel takes."""
    figures = {
        "registers": f", {config.registers} per thread",
        "shared memory": f", {human_bytes(config.shared_bytes)} per block",
    }
    return CAUSES[config.limit].format(figure=figures.get(config.limit, ""))


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
    """Return the expressions that compute f64 from inputs of other types, with their nodes."""
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
        f"{what} computes in f64 on {kernel.target}, and so do the values computed from it (first in kernel"
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
    """Return the kernel by name and phase: ``kernel `triton_poi_fused_mul_0` (backward, 12 launches)``."""
    often = f", {launches} launches" if launches > 1 else ""
    return f"kernel `{kernel.name}` ({kernel.phase}{often})"


def _at(kernel: Kernel, target: Target, code: str, severity: Severity, message: str) -> Diagnostic:
    """At its costliest expression, the next three related; at the target where none is."""
    if not kernel.spans:
        return Diagnostic(code, severity, message, target.span, cost=kernel_cost(target, kernel))
    first, *others = kernel.spans
    related = tuple(Related(span, "computed by the same kernel") for span in others[:3])
    return Diagnostic(code, severity, message, first, related, (), kernel_cost(target, kernel))


CHECKS: tuple[Check, ...] = (
    register_spills,
    low_occupancy,
    double_precision,
    failed_kernels,
    split_work,
    scattered_reads,
)
