"""Measured times beside floors: a GPU target that is this machine's own GPU runs the same kernels.

Invariant: a time is that of the same call; where the kernels of a phase are not the same ones in the same
order, none is taken over.
"""

from collections.abc import Iterable
from dataclasses import replace

from aotlens.report.kernel_records import Kernel
from aotlens.report.kernel_totals import gpu_kernels, is_for_gpu


def beside_floors(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """The rows for a GPU target with the times of the rows of this machine, which stay as they are."""
    rows = tuple(kernels)
    predicted = gpu_kernels(rows)
    ran = [kernel for kernel in rows if not is_for_gpu(kernel)]
    times: dict[tuple[str, int], float | None] = {}
    for phase in dict.fromkeys(kernel.phase for kernel in predicted):
        here = [kernel for kernel in ran if kernel.phase == phase]
        there = [kernel for kernel in predicted if kernel.phase == phase]
        if [kernel.name for kernel in here] == [kernel.name for kernel in there]:
            times |= {(phase, other.call): one.time_us for one, other in zip(here, there, strict=True)}
    return tuple(
        replace(kernel, time_us=times.get((kernel.phase, kernel.call))) if is_for_gpu(kernel) else kernel
        for kernel in rows
    )
