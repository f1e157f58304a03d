"""A lower bound on a kernel's time on a GPU, from its traffic and work: the roofline model.

Every byte moves at the memory's peak bandwidth and every operation runs at its unit's peak rate, both in
parallel. Launches, latency and idle multiprocessors make real kernels slower; only a kernel whose data is
still in the L2 cache can be faster.
"""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.gpus.gpu_target import GpuTarget, Unit

Side = Literal["memory", "arithmetic"]

ESTIMATE = (
    "estimate: the time floor by peak bandwidth and peak arithmetic, without launches, caches and latency"
)
"""Shown wherever a floor is shown."""


@dataclass(frozen=True, slots=True)
class Work:
    """Operations of one type on one unit."""

    flops: int
    """A fused multiply-add counts as two."""
    dtype: str
    """The report's short name, or `tf32`: `bf16`."""
    unit: Unit


@dataclass(frozen=True, slots=True)
class Floor:
    """The lower bound on a kernel's time, and what limits it."""

    memory_us: float
    arithmetic_us: float
    intensity: float | None
    """Operations per byte; None where no byte moves."""

    @property
    def time_us(self) -> float:
        """An estimate, which `ESTIMATE` describes."""
        return max(self.memory_us, self.arithmetic_us)

    @property
    def bound(self) -> Side:
        """The side that takes longer."""
        return "memory" if self.memory_us >= self.arithmetic_us else "arithmetic"


def floor(target: GpuTarget, moved_bytes: int, work: tuple[Work, ...] = ()) -> Floor:
    """Return the floor of a kernel with this memory traffic and work."""
    seconds: dict[Unit, float] = {"matrix": 0.0, "vector": 0.0}
    for part in work:
        seconds[part.unit] += part.flops / target.peak_flops(part.dtype, part.unit)
    flops = sum(part.flops for part in work)
    return Floor(
        memory_us=moved_bytes / (target.bandwidth_gb_per_s * 1e3),
        arithmetic_us=max(seconds.values()) * 1e6,  # the units run in parallel
        intensity=flops / moved_bytes if moved_bytes else None,
    )


def balance(target: GpuTarget, dtype: str, unit: Unit) -> float:
    """Return the intensity, in operations per byte, above which arithmetic limits instead of memory."""
    return target.peak_flops(dtype, unit) / (target.bandwidth_gb_per_s * 1e9)
