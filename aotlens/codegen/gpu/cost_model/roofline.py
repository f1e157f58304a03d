"""The least time that a kernel can take on a GPU, by what it moves and computes: the roofline model.

An estimate from below: every byte at the memory's peak bandwidth, every operation at its unit's peak rate,
both at once.  Launches, latency and idle multiprocessors make real kernels slower; only one whose bytes are
still in the L2 cache can be faster.
"""

from dataclasses import dataclass
from typing import Literal

from aotlens.codegen.gpu.targets import GpuTarget, Unit

Side = Literal["memory", "arithmetic"]

ESTIMATE = (
    "estimate: the time floor by peak bandwidth and peak arithmetic, without launches, caches and latency"
)
"""Said wherever a floor is shown."""


@dataclass(frozen=True, slots=True)
class Work:
    """Operations of one type on one unit."""

    flops: int
    """A fused multiply-add is two."""
    dtype: str
    """The report's short name, or `tf32`: `bf16`."""
    unit: Unit


@dataclass(frozen=True, slots=True)
class Floor:
    """What binds a kernel, and from which time on."""

    memory_us: float
    arithmetic_us: float
    intensity: float | None
    """Operations for each byte moved; None where nothing is moved."""

    @property
    def time_us(self) -> float:
        """An estimate: `ESTIMATE` says of what."""
        return max(self.memory_us, self.arithmetic_us)

    @property
    def bound(self) -> Side:
        """The side that needs longer."""
        return "memory" if self.memory_us >= self.arithmetic_us else "arithmetic"


def floor(target: GpuTarget, moved_bytes: int, work: tuple[Work, ...] = ()) -> Floor:
    """The floor of a kernel that reads and writes so many bytes of memory and computes this."""
    seconds: dict[Unit, float] = {"matrix": 0.0, "vector": 0.0}
    for part in work:
        seconds[part.unit] += part.flops / target.peak_flops(part.dtype, part.unit)
    flops = sum(part.flops for part in work)
    return Floor(
        memory_us=moved_bytes / (target.bandwidth_gb_per_s * 1e3),
        arithmetic_us=max(seconds.values()) * 1e6,  # the units compute side by side
        intensity=flops / moved_bytes if moved_bytes else None,
    )


def balance(target: GpuTarget, dtype: str, unit: Unit) -> float:
    """The intensity, in operations a byte, from which on arithmetic binds instead of memory."""
    return target.peak_flops(dtype, unit) / (target.bandwidth_gb_per_s * 1e9)
