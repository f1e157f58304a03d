"""What a multiprocessor holds and computes, by compute capability: one row each.

Sources: the CUDA C++ Programming Guide, tables "Technical Specifications per Compute Capability" (warps,
blocks, shared memory, registers) and "Throughput of Native Arithmetic Instructions" (lanes); the CUDA
toolkit's `cuda_occupancy.h` for the multiples in which registers and shared memory are given out.  A test
holds every row against that calculator, which comes with Triton.
"""

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class Architecture:
    """The limits that every GPU of one compute capability shares."""

    compute_capability: tuple[int, int]
    name: str
    """NVIDIA's name of the generation."""
    warps_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_kib_per_multiprocessor: int
    """At the largest share of the memory that shared memory and the L1 cache divide."""
    shared_kib_per_block: int
    """What a kernel may ask for at most."""
    reserved_shared_bytes: int
    """Taken by the system from each block's share."""
    shared_unit_bytes: int
    """Shared memory is given out in multiples of this."""
    f32_lanes: int
    """Fused multiply-adds per clock and multiprocessor, outside of the matrix units."""
    f64_lanes: int
    registers_per_multiprocessor: int = 65536
    registers_per_block: int = 65536
    registers_per_thread: int = 255
    register_unit_per_warp: int = 256
    """Registers are given to a warp in multiples of this."""
    partitions: int = 4
    """A multiprocessor's registers lie in so many parts of equal size, and a warp in one of them."""
    threads_per_block: int = 1024
    warp_size: int = 32

    @property
    def sm(self) -> str:
        """As compilers name it: `sm_90`."""
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
