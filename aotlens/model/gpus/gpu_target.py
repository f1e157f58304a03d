"""A GPU as its vendor specifies it."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.gpus.architectures import KIB, Architecture

Unit = Literal["matrix", "vector"]
"""The matrix (tensor) cores, or the lanes that compute everything else."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Peak rates of the matrix units in 10^12 dense operations per second with f32 sums; None where a type is
    unsupported."""

    f16: float
    bf16: float | None = None
    tf32: float | None = None
    f64: float | None = None
    f8: float | None = None
    i8: float | None = None


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """One GPU as its vendor specifies it; limits of a multiprocessor come from its architecture."""

    name: str
    """The name that a user writes, in any case and with any separators: `H100 SXM`."""
    aliases: tuple[str, ...]
    """Other names, including torch's device name."""
    architecture: Architecture
    multiprocessors: int
    memory_gib: int
    bandwidth_gb_per_s: int
    """Memory bandwidth in 10^9 bytes per second."""
    l2_mib: int
    clock_mhz: int
    """The boost clock at which the published f32 rate is reached."""
    matrix: Rates
    source: str
    """The documents with these figures."""

    @property
    def full_name(self) -> str:
        return f"NVIDIA {self.name}"

    @property
    def sm(self) -> str:
        """The architecture's name in compilers: `sm_90`."""
        return self.architecture.sm

    @property
    def compute_capability(self) -> tuple[int, int]:
        return self.architecture.compute_capability

    @property
    def memory_bytes(self) -> int:
        return self.memory_gib * KIB**3

    @property
    def l2_bytes(self) -> int:
        return self.l2_mib * KIB**2

    @property
    def registers_per_multiprocessor(self) -> int:
        return self.architecture.registers_per_multiprocessor

    @property
    def threads_per_multiprocessor(self) -> int:
        return self.architecture.threads_per_multiprocessor

    @property
    def shared_bytes_per_multiprocessor(self) -> int:
        return self.architecture.shared_kib_per_multiprocessor * KIB

    @property
    def shared_bytes_per_block(self) -> int:
        return self.architecture.shared_kib_per_block * KIB

    def peak_flops(self, dtype: str, unit: Unit) -> float:
        """Return the peak operations per second; a fused multiply-add counts as two.

        Types are the report's short names, and `tf32`. Types that the matrix units lack run on the lanes,
        where every type but f64 counts as f32, since generated kernels compute narrow types in f32.
        """
        name = "f8" if dtype.startswith("f8") else "i8" if dtype == "u8" else dtype
        rate = getattr(self.matrix, name, None) if unit == "matrix" else None
        if rate is not None:
            return float(rate) * 1e12
        lanes = self.architecture.f64_lanes if dtype == "f64" else self.architecture.f32_lanes
        return 2.0 * lanes * self.multiprocessors * self.clock_mhz * 1e6
