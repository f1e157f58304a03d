"""How many warps of a kernel a multiprocessor holds at once, and what keeps it from holding more.

Theoretical occupancy, by the arithmetic of the CUDA toolkit's occupancy calculator (`cuda_occupancy.h`), with
shared memory at its largest share and without clusters of blocks.  What a run reaches may be lower: the last
blocks of a grid leave multiprocessors idle.
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

from aotlens.codegen.gpu.architectures import Architecture
from aotlens.codegen.gpu.targets import GpuTarget

Limit = Literal["warps", "blocks", "registers", "shared memory"]


@dataclass(frozen=True, slots=True)
class Block:
    """What one block of a launch takes."""

    threads: int
    registers: int
    """Of each thread."""
    shared_bytes: int
    """Static and dynamic, without what the system reserves."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What fits on one multiprocessor."""

    blocks: int
    """0 where not even one block fits: the launch would fail."""
    warps: int
    ratio: float
    """Of the warps that the multiprocessor could hold."""
    limit: Limit
    """What allows the fewest blocks; of several, the one that a kernel can change least."""


def occupancy(architecture: Architecture, block: Block) -> Occupancy:
    """The blocks that a multiprocessor holds at once; a block has at least one thread."""
    if block.threads < 1:
        raise ValueError(f"a block of {block.threads} threads")
    warps = _up(block.threads, architecture.warp_size) // architecture.warp_size
    fits: dict[Limit, int] = {
        "warps": _by_warps(architecture, block, warps),
        "blocks": architecture.blocks_per_multiprocessor,
        "registers": _by_registers(architecture, block, warps),
        "shared memory": _by_shared_memory(architecture, block),
    }
    limit = min(fits, key=lambda name: fits[name])  # the first of the smallest
    blocks = fits[limit]
    held = blocks * warps
    return Occupancy(blocks, held, held / architecture.warps_per_multiprocessor, limit)


def waves(target: GpuTarget, held: Occupancy, grid: tuple[int, ...]) -> float | None:
    """How often the grid fills the GPU: below 1 it never does.  None where no block fits."""
    return prod(grid) / (held.blocks * target.multiprocessors) if held.blocks else None


def _by_warps(architecture: Architecture, block: Block, warps: int) -> int:
    if block.threads > architecture.threads_per_block:
        return 0
    return architecture.warps_per_multiprocessor // warps


def _by_registers(architecture: Architecture, block: Block, warps: int) -> int:
    """A warp's registers lie in one partition, and a block is checked as if it filled all of them alike."""
    if block.registers > architecture.registers_per_thread:
        return 0
    per_warp = _up(max(block.registers, 1) * architecture.warp_size, architecture.register_unit_per_warp)
    if per_warp * _up(warps, architecture.partitions) > architecture.registers_per_block:
        return 0
    in_partition = architecture.registers_per_multiprocessor // architecture.partitions // per_warp
    return in_partition * architecture.partitions // warps


def _by_shared_memory(architecture: Architecture, block: Block) -> int:
    if block.shared_bytes > architecture.shared_kib_per_block * 1024:
        return 0
    block_bytes = _up(block.shared_bytes + architecture.reserved_shared_bytes, architecture.shared_unit_bytes)
    free = architecture.shared_kib_per_multiprocessor * 1024
    return free // block_bytes if block_bytes else architecture.blocks_per_multiprocessor


def _up(value: int, unit: int) -> int:
    """The next multiple of the unit."""
    return -(-value // unit) * unit
