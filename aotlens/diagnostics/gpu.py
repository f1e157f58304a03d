"""Family AL6: kernels for a GPU, and what they move through memory without need."""

from collections.abc import Iterator
from itertools import groupby

from aotlens.diagnostics.findings import Check, Limits, kernel_cost
from aotlens.diagnostics.rule import Rule
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
        "The kernel keeps more values alive at once than a thread has registers for, so the compiler writes"
        " some to memory and reads them back. Told from 32 bytes a thread on, a warning from 128 on."
        " Arrays that a function has of its own (the slow path of `sin` for large arguments) are not"
        " spills.",
        "Memory traffic in the middle of arithmetic, for every thread. It mostly hits the L1 cache, which it"
        " takes from other data.",
        "Let one expression need less at once: a reduction of fewer terms together, a long chain cut by a"
        " value that is kept, or a smaller block where the report lists another configuration without"
        " spills.",
        "def mix(x, y):  # f64[76, 1048576] each\n    parts = [torch.exp(row) for row in x.unbind(0)]\n"
        "    total = sum(parts) + sum(y.unbind(0))\n"
        "    return sum(p * q / total for p, q in zip(parts, y.unbind(0)))",
    ),
    Rule(
        "AL602",
        "A kernel fills little of the GPU",
        "information",
        "A multiprocessor can hold a number of warps at once, and changes between them while some wait for"
        " memory. Here fewer than a quarter fit: the finding names what runs out first (registers, shared"
        " memory, warps, blocks). Not reported: matrix products, which are made for few warps with many"
        " registers, and launches too small to fill the GPU at all.",
        "Waiting for memory shows, as there is little else to run meanwhile. How much cannot be told without"
        " a run.",
        "Registers: keep fewer values alive in one expression. Shared memory: reduce over fewer values at"
        " once. Blocks: more elements for each block. Compare the other configurations that the report"
        " lists.",
        "def mix(x):  # f32[64, 1048576]\n    total = sum(torch.sin(x[i]) for i in range(64))\n"
        "    return torch.stack([torch.sin(x[i]) / total for i in range(64)])",
    ),
    Rule(
        "AL603",
        "Double precision on a GPU",
        "warning",
        "The expression computes in `float64` on a GPU target. Most often the type came in with a NumPy"
        " array, `.double()`, or a tensor made under another default type.",
        "Twice the bytes of `float32`; arithmetic at half of its rate on data-centre GPUs (V100, A100, H100,"
        " B200: information) and at 1/32 to 1/64 on all others (warning).",
        "Convert what comes in (`torch.from_numpy(a).float()`), and give constants the type of the data."
        " Sums that need more than `float32` can often be taken alone in `float64`.",
        "def loss(x, mean):  # mean: f64[512]\n    return ((x - mean) ** 2).mean()",
        "def loss(x, mean):\n    return ((x - mean.to(x.dtype)) ** 2).mean()",
    ),
    Rule(
        "AL604",
        "An operator splits what a GPU could do in one pass",
        "information",
        "Elementwise work stands before and behind an operator that runs as a library call (a sort, a"
        " selection, a Fourier transform, a custom operator). Nothing is fused into such a call, so its"
        " input is written to memory by one kernel and its result is read by another. Told from 4 MiB a"
        " call on; matrix products, convolutions and attention, whose cost is their own work, are not"
        " reported.",
        "The values on both sides go through memory twice more than the operator itself needs.",
        "Move elementwise work from one side to the other where the result is the same: what is monotonic"
        " (`relu` before `sort`) can go behind, together with what stands there; what follows a selection"
        " that leaves few values costs little. Where only a part of a sorted result is used, `topk` or"
        " `amax` spares most of it.",
        "def ranks(x):  # f32[64, 65536]\n    return x.relu().sort(-1).values * 2",
        "def ranks(x):\n    return x.sort(-1).values.relu() * 2",
    ),
    Rule(
        "AL605",
        "Elements that lie apart multiply the traffic",
        "warning",
        "A kernel reads elements of which only a few lie in each 32 bytes: every eighth column, one field of"
        " an array of structures, single elements at given places. Memory moves whole sectors of 32 bytes,"
        " and what lies between is not used by that kernel. Told where that is at least twice what is needed"
        " and 4 MiB more. A transposed read is not reported: kernels read it block by block, and use all of"
        " each sector. For single elements at places that data gives, the figure is the most that it can"
        " be, and the finding information.",
        "Time: what the memory moves sets the pace of such kernels.",
        "Put together in memory what is read together: change the order of dimensions where the tensor is"
        " made, take one `contiguous()` copy of what is read several times, or gather rows in place of"
        " single elements.",
        "def field(points):  # f32[4194304, 8]\n    return points[:, 0].exp()",
        "def field(points):  # f32[8, 4194304]\n    return points[0].exp()",
    ),
    Rule(
        "AL606",
        "A kernel could not be compiled for the GPU",
        "error",
        "Triton refused a kernel for the GPU that `--gpu` names, or took longer than its time limit. The"
        " other kernels are shown; this one has no figures.",
        "Nothing is known of the kernel's cost, and on that GPU it would fail.",
        "For a kernel of your own the message tells its line. A type that the GPU lacks (bfloat16 before"
        " `sm_80`, float8 before `sm_89`) needs another type or another GPU; for a time limit there is"
        " `--kernel-time-limit`.",
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
        f" which takes no other work in: {human_bytes(moved)} between it and the elementwise work before"
        " and behind it are written to memory and read again"
    )
    others = dict.fromkeys(other.spans[0] for other in beside if other.spans and other.spans[0] != span)
    related = tuple(Related(other, "elementwise work beside it") for other in list(others)[:3])
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
    where = "at places that data gives" if access.is_gather else "that lie apart in memory"
    message = (
        f"{what} reads {human_bytes(access.bytes)} {where}: on {kernel.target} {most}"
        f"{human_bytes(access.sector_bytes)} are moved for it, since memory moves 32 bytes at once"
        f" (kernel `{kernel.name}`, {kernel.phase})"
    )
    return Diagnostic("AL605", severity, message, span)


HALF_RATE_F64 = frozenset({"sm_70", "sm_80", "sm_90", "sm_100"})
"""GPUs with half of f32's lanes for f64; all others have 1/32 to 1/64."""
DOUBLE = frozenset({"f64", "c128"})
MATRIX_PRODUCT = "tl.dot"
"""In the source of a kernel that uses the matrix units."""

CAUSES: dict[str, str] = {
    "registers": "registers run out first{figure}; keep fewer values alive at once in this expression",
    "shared memory": "shared memory runs out first{figure}; reduce over fewer values at once",
    "warps": "its blocks are too large for a second one to fit",
    "blocks": "its blocks have too few threads",
}
"""The limits of the occupancy, each with its remedy."""


def _on_gpu(target: Target) -> Iterator[tuple[Kernel, int]]:
    """Yield each kernel for a GPU, its launch with the highest occupancy, and the number of its launches."""
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
    """AL602: too few warps to hide latency."""
    for kernel, launches in _on_gpu(target):
        chosen = kernel.configs[0] if kernel.configs else None
        if chosen is None or chosen.occupancy >= limits.occupancy or MATRIX_PRODUCT in kernel.source:
            continue
        if chosen.waves is not None and chosen.waves < 1:
            continue  # the launch is too small to fill the GPU, whatever its blocks take
        message = (
            f"{_called(kernel, launches)} keeps {percent(chosen.occupancy)} of the warps that"
            f" {kernel.target} can hold: {_cause(chosen)}"
        )
        yield _at(kernel, target, "AL602", "information", message)


def _cause(config: KernelConfig) -> str:
    """Return the limit of the occupancy, and how much of that resource the kernel takes."""
    figures = {
        "registers": f", {config.registers} a thread",
        "shared memory": f", {human_bytes(config.shared_bytes)} a block",
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
