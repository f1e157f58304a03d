"""Kernels in every front end: names, texts, totals by phase and line, why two were not fused, times.

Invariant: a total counts each kernel once, and a measured time is never added to a predicted one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from aotlens.model.kernels import Kernel, KernelConfig, KernelShare, LineCost, PhaseCost
from aotlens.model.source import Span
from aotlens.view.quantities import human_us, percent
from aotlens.view.shorten import shortened


def is_for_gpu(kernel: Kernel) -> bool:
    return kernel.target.startswith("sm_")


def gpu_kernels(kernels: Iterable[Kernel]) -> list[Kernel]:
    """Return the kernels for a GPU target, in call order."""
    return [kernel for kernel in kernels if is_for_gpu(kernel)]


def phase_costs(kernels: Iterable[Kernel]) -> tuple[PhaseCost, ...]:
    """One row for each phase, in the order in which they run."""
    by_phase: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in gpu_kernels(kernels):
        by_phase.setdefault((kernel.phase, kernel.target), []).append(kernel)
    return tuple(map(_phase, by_phase.values()))


def _phase(kernels: list[Kernel]) -> PhaseCost:
    """Return the sums of one phase; kernels that a sum lacks are counted separately."""
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
    """The part of the measured time that each share accounts for."""
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
            line.span = max(line.span, span, key=lambda other: other.extent)
            line.shares.append(share)
            line.times.append(_time_of(share, kernel))
            touched[id(line)] = line
        for line in touched.values():
            line.backward += kernel.phase == "backward"
            line.forward += kernel.phase != "backward"
    costs = [_cost(line) for line in lines.values()]
    return tuple(sorted(costs, key=lambda cost: (-cost.floor_us, cost.span.file, cost.span.line)))


def _time_of(share: KernelShare, kernel: Kernel) -> float | None:
    """Return the share's part of the kernel's time: by its part of the floor, or evenly where the floor is
    zero."""
    if kernel.time_us is None:
        return None
    whole = sum(part.floor_us for part in kernel.shares)
    return kernel.time_us * (share.floor_us / whole if whole else 1 / len(kernel.shares))


def known_sum(times: Iterable[float | None]) -> float | None:
    """Return the sum; None where one of them is not known."""
    known = list(times)
    return None if None in known else sum(time for time in known if time is not None)


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


LONGEST_NAME, SHORTEST_NAME = 34, 16
PREFIXES = ("torch.ops.", "extern_kernels.")
"""Prefixes of library functions in generated code."""


def short_name(name: str, longest: int = LONGEST_NAME) -> str:
    """Return the kernel's name, shortened."""
    return shortened(own_name(name), longest)


def own_name(name: str) -> str:
    """`aten.bernoulli.p` of `torch.ops.aten.bernoulli.p`."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


TRITON = "triton"
"""The name of a GPU kernel's first text; that of a CPU kernel is `source`."""


def first_launch(kernel: Kernel, kernels: Sequence[Kernel]) -> Kernel:
    """Return the first launch of a kernel, the only one that a report has the texts of."""
    launches = (row for row in kernels if (row.name, row.phase) == (kernel.name, kernel.phase))
    return next(launches, kernel)


def kernel_texts(first: Kernel) -> tuple[tuple[str, str], ...]:
    """Return each language of a kernel with its text, from its first launch; a later one has none."""
    written = TRITON if is_for_gpu(first) else "source"
    own = ((written, first.source),) if first.source else ()
    return (*own, *((text.language, text.text) for text in first.texts))


def moved_bytes(kernel: Kernel) -> int | None:
    """Return the bytes that one launch reads and writes; None where they are not known."""
    if kernel.bytes_moved is not None:
        return kernel.bytes_moved
    known = [size for size in (kernel.bytes_read, kernel.bytes_written) if size is not None]
    return sum(known) if known else None


def kernel_time(kernel: Kernel) -> float | None:
    """Return the measured time in microseconds, else the least time that the target could take."""
    return kernel.time_us if kernel.time_us is not None else kernel.floor_us


def floor_text(floor_us: float) -> str:
    """`at least 2.00 µs (an estimate)`: a floor, which no kernel can beat on its target."""
    return f"at least {human_us(floor_us)} (an estimate)"


def occupancy_text(config: KernelConfig) -> str:
    """Return the occupancy in words: `occupancy 75%`."""
    return f"occupancy {percent(config.occupancy)}"


def grid_text(config: KernelConfig) -> str:
    """Return how many blocks one launch has, `16×8 blocks`; or that the data decides it."""
    if config.grid is None:
        return "as many blocks as the data needs"
    sizes = [size for size in config.grid if size > 1] or [1]
    blocks = f"{'×'.join(map(str, sizes))} {'block' if sizes == [1] else 'blocks'}"
    return f"{blocks} at the example's sizes" if config.grid_of_example else blocks


def block_sizes_text(config: KernelConfig) -> str:
    """Return `XBLOCK=256 RBLOCK=64`; empty for a kernel without such parameters."""
    return " ".join(f"{name}={size}" for name, size in config.blocks.items())


TEMPLATE = "triton_tem_"
"""The prefix of kernels from a template; the GPU may have run another template, or the library's kernel."""
CPU = "cpp_"
"""The prefix of CPU kernels."""
ENDING = "torch.sum"
"""The row of a sum that ends a kernel; the rows of this machine have its time at the kernel."""


def with_measured_times(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """Return the rows for a GPU target with the times measured on this machine; CPU rows stay unchanged."""
    rows = tuple(kernels)
    predicted = gpu_kernels(rows)
    ran = [kernel for kernel in rows if _ran_on_gpu(kernel)]
    timed: dict[tuple[str, int], Kernel] = {}
    for phase in dict.fromkeys(kernel.phase for kernel in predicted):
        measured = [kernel for kernel in ran if kernel.phase == phase]
        phase_rows = [kernel for kernel in predicted if kernel.phase == phase]
        for timed_kernel in _measured_rows(measured, phase_rows):
            timed[timed_kernel.phase, timed_kernel.call] = timed_kernel
    return tuple(
        timed.get((kernel.phase, kernel.call), kernel) if is_for_gpu(kernel) else kernel for kernel in rows
    )


def _ran_on_gpu(kernel: Kernel) -> bool:
    """Return True for a row of this machine's GPU; a graph also has kernels for its CPU."""
    return kernel.target.startswith("cuda") and not kernel.name.startswith(CPU)


def _measured_rows(measured_kernels: list[Kernel], phase_rows: list[Kernel]) -> Iterator[Kernel]:
    """Yield the rows of one phase with their times; none where they do not match the calls."""
    calls = [kernel for kernel in phase_rows if kernel.name != ENDING]
    if len(measured_kernels) != len(calls) or not all(map(_is_same, measured_kernels, calls)):
        return
    measured = {
        row.call: measured_kernel for measured_kernel, row in zip(measured_kernels, calls, strict=True)
    }
    endings: list[float] = []
    for kernel in phase_rows:
        measured_kernel = measured.get(kernel.call)
        if measured_kernel is None:
            yield replace(kernel, time_us=endings.pop(0) if endings else None)
        else:
            endings = list(measured_kernel.ending_us)
            yield replace(
                kernel, time_us=measured_kernel.time_us, ran=measured_kernel.ran if kernel.configs else None
            )


def _is_same(first: Kernel, second: Kernel) -> bool:
    """Return True if two rows belong to the same call."""
    if first.name == second.name:
        return True
    chosen = first.name.startswith(TEMPLATE) or second.name.startswith(TEMPLATE)
    return chosen and bool(set(first.nodes) & set(second.nodes))
