"""Findings about what kernels for a GPU move through memory without need.

Invariant: a finding tells of bytes, by the report's own account of accesses; what has no line of the user's
is not told.
"""

from collections.abc import Iterator

from aotlens.report.findings import Check, Limits
from aotlens.report.kernel_totals import gpu_kernels
from aotlens.report.places import quoted, text_of
from aotlens.report.records import Diagnostic, Kernel, KernelAccess, Related, Severity, Span, Target
from aotlens.report.summary import human_bytes

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
"""In the names of library calls whose cost is their own arithmetic."""


def split_work(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL604: elementwise kernels on both sides of a library call."""
    told: set[Span] = set()
    kernels = gpu_kernels(target.kernels)
    for kernel in kernels:
        if not _is_between(kernel) or not kernel.spans or kernel.spans[0] in told:
            continue
        calls = {other.call: other for other in kernels if other.phase == kernel.phase}
        before = _producers(kernel, calls)
        after = [other for other in _users(kernel, calls) if POINTWISE in other.source]
        given = sum(one.bytes for one in kernel.unfused if one.call in before)
        taken = max((_taken(other, kernel, calls) for other in after), default=0)
        if before and after and given + taken >= limits.split_bytes:
            told.add(kernel.spans[0])
            yield _split(kernel, [*before.values(), *after], given + taken)


def _is_between(kernel: Kernel) -> bool:
    return kernel.kind == "library" and not any(part in kernel.name for part in OWN_WORK)


def _producers(kernel: Kernel, calls: dict[int, Kernel]) -> dict[int, Kernel]:
    """The elementwise kernels that write what a call reads."""
    found = {one.call: calls[one.call] for one in kernel.unfused if one.is_produced}
    return {call: other for call, other in found.items() if POINTWISE in other.source}


def _users(kernel: Kernel, calls: dict[int, Kernel]) -> list[Kernel]:
    """What reads a call's results, through further such calls too."""
    reached = {kernel.call}
    found = []
    for call in sorted(calls):
        other = calls[call]
        if any(one.is_produced and one.call in reached for one in other.unfused):
            if _is_between(other):
                reached.add(call)
            else:
                found.append(other)
    return found


def _taken(user: Kernel, kernel: Kernel, calls: dict[int, Kernel]) -> int:
    """Bytes that a kernel reads of what library calls from this one on give."""
    return sum(
        one.bytes
        for one in user.unfused
        if one.is_produced and one.call >= kernel.call and _is_between(calls[one.call])
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
    """AL605: reads of elements that lie apart, once for each expression."""
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


TRAFFIC_CHECKS: tuple[Check, ...] = (split_work, scattered_reads)
