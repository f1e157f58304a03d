"""The limits and lanes of a multiprocessor, one row per compute capability.

Sources: the CUDA C++ Programming Guide, tables "Technical Specifications per Compute Capability" (warps,
blocks, shared memory, registers) and "Throughput of Native Arithmetic Instructions" (lanes); the CUDA
toolkit's `cuda_occupancy.h` for the allocation units of registers and shared memory. A test compares every
row with that calculator, which comes with Triton.
"""

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class Architecture:
    """The limits that all GPUs of one compute capability share."""

    compute_capability: tuple[int, int]
    name: str
    """NVIDIA's name of the generation."""
    warps_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_kib_per_multiprocessor: int
    """At the largest share of the memory that shared memory and the L1 cache divide."""
    shared_kib_per_block: int
    """The most that a kernel may request."""
    reserved_shared_bytes: int
    """Reserved by the system in each block."""
    shared_unit_bytes: int
    """The allocation unit of shared memory."""
    f32_lanes: int
    """Fused multiply-adds per clock and multiprocessor, outside of the matrix units."""
    f64_lanes: int
    registers_per_multiprocessor: int = 65536
    registers_per_block: int = 65536
    registers_per_thread: int = 255
    register_unit_per_warp: int = 256
    """The allocation unit of a warp's registers."""
    partitions: int = 4
    """The number of equal register files of a multiprocessor; a warp uses one of them."""
    threads_per_block: int = 1024
    warp_size: int = 32

    @property
    def sm(self) -> str:
        """The name in compilers: `sm_90`."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    @property
    def threads_per_multiprocessor(self) -> int:
        return self.warps_per_multiprocessor * self.warp_size


# columns: capability, name, warps, blocks, shared KiB (multiprocessor, block), reserved, unit, f32, f64 lanes
ARCHITECTURES = (
    Architecture((7, 0), "Volta", 64, 32, 96, 96, 0, 256, 64, 32),
    Architecture((7, 5), "Turing", 32, 16, 64, 64, 0, 256, 64, 2),
    Architecture((8, 0), "Ampere", 64, 32, 164, 163, KIB, 128, 64, 32),
    Architecture((8, 6), "Ampere", 48, 16, 100, 99, KIB, 128, 128, 2),
    Architecture((8, 9), "Ada Lovelace", 48, 24, 100, 99, KIB, 128, 128, 2),
    Architecture((9, 0), "Hopper", 64, 32, 228, 227, KIB, 128, 128, 64),
    Architecture((10, 0), "Blackwell", 64, 32, 228, 227, KIB, 128, 128, 64),
    Architecture((12, 0), "Blackwell", 48, 24, 100, 99, KIB, 128, 128, 2),
)

BY_CAPABILITY = {entry.compute_capability: entry for entry in ARCHITECTURES}
