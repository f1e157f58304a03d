"""Measured times beside floors: a GPU target that is this machine's own GPU runs the same kernels.

Invariant: a time is that of the same call; where the calls of a phase are not the same ones in the same
order, none is taken over.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from aotlens.report.kernel_records import Kernel
from aotlens.report.kernel_totals import gpu_kernels, is_for_gpu

TEMPLATE = "triton_tem_"
"""How the names of kernels from a template begin: a GPU may have taken another one, or the library's."""
CPU = "cpp_"
"""How the names of kernels for a CPU begin."""
ENDING = "torch.sum"
"""The row of a sum with which a kernel ends; the machine's rows have its time at the kernel."""


def beside_floors(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """The rows for a GPU target with the times of the rows of this machine, which stay as they are."""
    rows = tuple(kernels)
    predicted = gpu_kernels(rows)
    ran = [kernel for kernel in rows if _has_run_there(kernel)]
    timed: dict[tuple[str, int], Kernel] = {}
    for phase in dict.fromkeys(kernel.phase for kernel in predicted):
        here = [kernel for kernel in ran if kernel.phase == phase]
        there = [kernel for kernel in predicted if kernel.phase == phase]
        for found in _timed(here, there):
            timed[found.phase, found.call] = found
    return tuple(
        timed.get((kernel.phase, kernel.call), kernel) if is_for_gpu(kernel) else kernel for kernel in rows
    )


def _has_run_there(kernel: Kernel) -> bool:
    """Whether it is a row of this machine's GPU; kernels for its CPU stand among those of a graph."""
    return kernel.target.startswith("cuda") and not kernel.name.startswith(CPU)


def _timed(here: list[Kernel], there: list[Kernel]) -> Iterator[Kernel]:
    """The rows of one phase with their times; nothing where they are not those of the same calls."""
    calls = [kernel for kernel in there if kernel.name != ENDING]
    if len(here) != len(calls) or not all(map(_is_same, here, calls)):
        return
    measured = {other.call: one for one, other in zip(here, calls, strict=True)}
    endings: list[float] = []
    for kernel in there:
        one = measured.get(kernel.call)
        if one is None:
            yield replace(kernel, time_us=endings.pop(0) if endings else None)
        else:
            endings = list(one.ending_us)
            yield replace(kernel, time_us=one.time_us, ran=one.ran if kernel.configs else None)


def _is_same(one: Kernel, other: Kernel) -> bool:
    """Whether two rows are of one call."""
    if one.name == other.name:
        return True
    chosen = one.name.startswith(TEMPLATE) or other.name.startswith(TEMPLATE)
    return chosen and bool(set(one.nodes) & set(other.nodes))
