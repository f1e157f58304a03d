"""Check whether a step fits a GPU: what the caching allocator reserves, compared with the GPU's memory.

Invariant: memory = context + reserve + capacity, and each of the three is in the record.
"""

from collections.abc import Sequence

from aotlens.fit.allocator import AllocationEvent, replay
from aotlens.model.fit import FitAllocation, GpuFit
from aotlens.model.gpus.names import find_target

__all__ = ["gpu_fit"]

MIB = 1 << 20
CONTEXT_BYTES = 512 * MIB
"""The CUDA context and the kernels that torch's libraries load: an assumption, not a measurement."""
RESERVE_BYTES = 256 * MIB
"""Workspaces of cuDNN and other libraries, which the prediction does not cover: an assumption."""


def gpu_fit(allocations: Sequence[FitAllocation], gpu: str) -> GpuFit:
    """Replay one step, after what is alive before it.  Raises UserError for an unknown GPU."""
    target = find_target(gpu)
    on_any_device = [
        each for each in allocations if each.kind != "working memory"
    ]  # its rules are those of the CPU
    use = replay(_events(on_any_device))
    capacity_bytes = target.memory_bytes - CONTEXT_BYTES - RESERVE_BYTES
    return GpuFit(
        gpu=target.name,
        capacity_bytes=capacity_bytes,
        reserved_bytes=use.peak_reserved_bytes,
        ok=use.peak_reserved_bytes <= capacity_bytes,
        memory_bytes=target.memory_bytes,
        context_bytes=CONTEXT_BYTES,
        reserve_bytes=RESERVE_BYTES,
        allocated_bytes=use.peak_allocated_bytes,
    )


def _events(allocations: Sequence[FitAllocation]) -> tuple[AllocationEvent, ...]:
    rows = [(each.made, AllocationEvent(key, each.bytes)) for key, each in enumerate(allocations)]
    rows += [
        (each.freed, AllocationEvent(key, 0))
        for key, each in enumerate(allocations)
        if each.freed is not None
    ]
    return tuple(event for _, event in sorted(rows, key=lambda row: row[0]))
