"""Kernels for a GPU together: by phase, and by line of the user's code.

Invariant: the shares of a kernel are the whole of it, so the lines' sums and what stands at no line are the
phases' sums.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from aotlens.report.kernel_records import Kernel, KernelShare, LineCost, PhaseCost
from aotlens.report.source_records import Span


def is_for_gpu(kernel: Kernel) -> bool:
    return kernel.target.startswith("sm_")


def gpu_kernels(kernels: Iterable[Kernel]) -> list[Kernel]:
    """Those for a GPU target, in call order."""
    return [kernel for kernel in kernels if is_for_gpu(kernel)]


def phase_costs(kernels: Iterable[Kernel]) -> tuple[PhaseCost, ...]:
    """One row for each phase, in the order in which they run."""
    by_phase: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in gpu_kernels(kernels):
        by_phase.setdefault((kernel.phase, kernel.target), []).append(kernel)
    return tuple(map(_phase, by_phase.values()))


def _phase(kernels: list[Kernel]) -> PhaseCost:
    generated = sum(kernel.kind == "generated" for kernel in kernels)
    return PhaseCost(
        phase=kernels[0].phase,
        target=kernels[0].target,
        generated=generated,
        library=len(kernels) - generated,
        bytes_read=sum(kernel.bytes_read or 0 for kernel in kernels),
        bytes_written=sum(kernel.bytes_written or 0 for kernel in kernels),
        flops=sum(kernel.flops or 0 for kernel in kernels),
        floor_us=sum(kernel.floor_us or 0.0 for kernel in kernels),
        time_us=known_sum(kernel.time_us for kernel in kernels),
        unknown=sum(kernel.floor_us is None for kernel in kernels),
        unknown_flops=sum(kernel.floor_us is not None and kernel.flops is None for kernel in kernels),
    )


@dataclass(slots=True)
class _Line:
    """Mutable while kernels are added."""

    span: Span
    shares: list[KernelShare] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    """What each share has of its kernel's measured time."""
    forward: int = 0
    backward: int = 0


def line_costs(kernels: Iterable[Kernel]) -> tuple[LineCost, ...]:
    """One row for each line, the costliest first; equal ones in the order of the source."""
    lines: dict[tuple[str, int], _Line] = {}
    for kernel in gpu_kernels(kernels):
        touched: dict[int, _Line] = {}
        for share in kernel.shares:
            span = share.span
            line = lines.setdefault((span.file, span.line), _Line(span))
            line.span = max(line.span, span, key=extent)
            line.shares.append(share)
            line.times.append(_time_of(share, kernel))
            touched[id(line)] = line
        for line in touched.values():
            line.backward += kernel.phase == "backward"
            line.forward += kernel.phase != "backward"
    costs = [_cost(line) for line in lines.values()]
    return tuple(sorted(costs, key=lambda cost: (-cost.floor_us, cost.span.file, cost.span.line)))


def _time_of(share: KernelShare, kernel: Kernel) -> float | None:
    """By its part of the floor; by the number of shares where the floor is nothing."""
    if kernel.time_us is None:
        return None
    whole = sum(one.floor_us for one in kernel.shares)
    return kernel.time_us * (share.floor_us / whole if whole else 1 / len(kernel.shares))


def known_sum(times: Iterable[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    known = list(times)
    return None if None in known else sum(time for time in known if time is not None)


def extent(span: Span) -> tuple[int, int]:
    """How much of the source it is, to find the widest of several on one line."""
    return span.end_line - span.line, span.end_col - span.col


def _cost(line: _Line) -> LineCost:
    return LineCost(
        span=line.span,
        kernels_forward=line.forward,
        kernels_backward=line.backward,
        bytes_read=sum(share.bytes_read for share in line.shares),
        bytes_written=sum(share.bytes_written for share in line.shares),
        flops=sum(share.flops for share in line.shares),
        floor_us=sum(share.floor_us for share in line.shares),
        time_us=known_sum(line.times),
    )
