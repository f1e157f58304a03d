"""The number of a kernel's warps that a multiprocessor holds at once, and what limits it.

Theoretical occupancy, by the formulas of the CUDA toolkit's occupancy calculator (`cuda_occupancy.h`), with
shared memory at its largest share and without thread block clusters. A run may reach less: the last blocks of
a grid leave multiprocessors idle.
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

from aotlens.model.gpus.architectures import Architecture
from aotlens.model.gpus.gpu_target import GpuTarget

Limit = Literal["warps", "blocks", "registers", "shared memory"]


@dataclass(frozen=True, slots=True)
class Block:
    """The resources of one block of a launch."""

    threads: int
    registers: int
    """Per thread."""
    shared_bytes: int
    """Static and dynamic, without the system's reservation."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The blocks and warps that fit on one multiprocessor."""

    blocks: int
    """0 where not even one block fits, so that the launch would fail."""
    warps: int
    ratio: float
    """Relative to the multiprocessor's maximum number of warps."""
    limit: Limit
    """The resource that allows the fewest blocks; of several, the one that a kernel can change least."""


def occupancy(architecture: Architecture, block: Block) -> Occupancy:
    """Return how many blocks a multiprocessor holds at once; a block has at least one thread."""
    if block.threads < 1:
        raise ValueError(f"a block of {block.threads} threads")
    warps = _up(block.threads, architecture.warp_size) // architecture.warp_size
    fits: dict[Limit, int] = {
        "warps": _by_warps(architecture, block, warps),
        "blocks": architecture.blocks_per_multiprocessor,
        "registers": _by_registers(architecture, block, warps),
        "shared memory": _by_shared_memory(architecture, block),
    }
    limit = min(fits, key=lambda name: fits[name])  # the first minimum
    blocks = fits[limit]
    resident_warps = blocks * warps
    return Occupancy(blocks, resident_warps, resident_warps / architecture.warps_per_multiprocessor, limit)


def waves(target: GpuTarget, block_occupancy: Occupancy, grid: tuple[int, ...]) -> float | None:
    """Return how often the grid fills the GPU: below 1 it never does.  None where no block fits."""
    blocks = block_occupancy.blocks
    return prod(grid) / (blocks * target.multiprocessors) if blocks else None


def _by_warps(architecture: Architecture, block: Block, warps: int) -> int:
    if block.threads > architecture.threads_per_block:
        return 0
    return architecture.warps_per_multiprocessor // warps


def _by_registers(architecture: Architecture, block: Block, warps: int) -> int:
    """Return the blocks that the registers allow: a warp's registers are in one partition, and a block is
    checked as if it filled all partitions equally."""
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
    """Return the next multiple of the unit."""
    return -(-value // unit) * unit
