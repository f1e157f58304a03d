"""Compute what PyTorch's CUDA caching allocator reserves for a sequence of allocations and frees.  Stdlib
only.

The sizes and rules are those of `c10/cuda/CUDACachingAllocator.cpp` in torch 2.11 to 2.15 with default
settings.  Blocks are multiples of 512 B.  Those of at most 1 MiB come from segments of 2 MiB; others from
segments of 20 MiB, or from 10 MiB on of their own size in multiples of 2 MiB.  The smallest sufficient free
block is taken and split, free neighbours are merged, and whole free segments are returned to the driver
before an allocation fails.

Invariant: the blocks of a segment cover it without gaps, and no two free blocks are neighbours.

Not modelled: several streams (all blocks count as those of one), private pools of CUDA graphs, garbage
collection below the limit, `max_split_size_mb`, and the return of whole free pages in the middle of an
expandable segment, of which only the free end is returned.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["AllocationEvent", "AllocatorUse", "OutOfMemory", "replay", "rounded"]

BLOCK_BYTES = 512
SMALL_BYTES = 1 << 20
"""The largest block of the small pool."""
SMALL_SEGMENT_BYTES = 2 << 20
LARGE_SEGMENT_BYTES = 20 << 20
OWN_SEGMENT_BYTES = 10 << 20
"""From here on a block gets a segment of its own size."""
ROUND_LARGE_BYTES = 2 << 20

Pool = Literal["small", "large"]


@dataclass(frozen=True, slots=True)
class AllocationEvent:
    """An allocation or free of a tensor's memory."""

    key: int
    """The allocation of the event; each key is allocated once and freed at most once."""
    size_bytes: int
    """The requested size; 0 frees."""


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The first allocation that does not fit."""

    event: int
    """Its position in the sequence."""
    size_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    """Before it, after free segments were returned to the driver."""


@dataclass(frozen=True, slots=True)
class AllocatorUse:
    """The memory that a sequence needs."""

    peak_allocated_bytes: int
    """The largest sum of blocks in use, each rounded to 512 B."""
    peak_reserved_bytes: int
    """The largest sum of segments, which `nvidia-smi` shows in addition to the CUDA context."""
    peak_reserved_event: int
    """The position of the event that reached it; 0 for an empty sequence."""
    fragmentation: float
    """The share of the reserved bytes at their peak that no block in use fills."""
    segments: int
    """The number of segments at the end."""
    out_of_memory: OutOfMemory | None = None
    """None if everything fits, or no capacity is set."""


def replay(
    events: Iterable[AllocationEvent], capacity_bytes: int | None = None, *, is_expandable: bool = False
) -> AllocatorUse:
    """Run the events through an empty allocator, up to the first one that exceeds the capacity.

    `is_expandable` is the setting `expandable_segments:True`: one segment per pool, which grows at its end.

    Raises:
        ValueError: a key is allocated twice, or freed without having been allocated.
    """
    allocator = _Allocator(capacity_bytes, is_expandable)
    fragmentation, reserved_event = 0.0, 0
    for index, event in enumerate(events):
        before = allocator.peak_reserved_bytes
        if not allocator.apply(event):
            failed = OutOfMemory(index, event.size_bytes, allocator.allocated_bytes, allocator.reserved_bytes)
            return allocator.use(reserved_event, fragmentation, failed)
        if allocator.peak_reserved_bytes > before:
            reserved_event = index
            fragmentation = 1 - allocator.allocated_bytes / allocator.reserved_bytes
    return allocator.use(reserved_event, fragmentation, None)


def rounded(size_bytes: int) -> int:
    """Return the size of the block for a request."""
    return max(BLOCK_BYTES, _up(size_bytes, BLOCK_BYTES))


def segment_bytes(block_bytes: int) -> int:
    """Return the size of a new segment for a block."""
    if block_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if block_bytes < OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return _up(block_bytes, ROUND_LARGE_BYTES)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


@dataclass(slots=True, eq=False)
class _Block:
    """A part of a segment; mutable, because splitting and merging change its size and neighbours."""

    pool: Pool
    segment: int
    address: int
    size_bytes: int
    is_free: bool = False
    previous: "_Block | None" = None
    following: "_Block | None" = None


@dataclass(slots=True)
class _FreeBlocks:
    """The free blocks of a pool, the smallest first; equal ones by address."""

    order: list[tuple[int, int]] = field(default_factory=list)
    by_address: dict[int, _Block] = field(default_factory=dict)

    def add(self, block: _Block) -> None:
        block.is_free = True
        insort(self.order, (block.size_bytes, block.address))
        self.by_address[block.address] = block

    def remove(self, block: _Block) -> None:
        block.is_free = False
        del self.order[bisect_left(self.order, (block.size_bytes, block.address))]
        del self.by_address[block.address]

    def fitting(self, size_bytes: int, growing: _Block | None) -> _Block | None:
        """Return the smallest sufficient block; the one that can still grow comes last."""
        index = bisect_left(self.order, (size_bytes, -1))
        blocks = [self.by_address[address] for _, address in self.order[index : index + 2]]
        return next((block for block in blocks if block is not growing), blocks[0] if blocks else None)


class _Allocator:
    """The state after some events."""

    def __init__(self, capacity_bytes: int | None, is_expandable: bool) -> None:
        self._capacity_bytes = capacity_bytes
        self._is_expandable = is_expandable
        self._free: dict[Pool, _FreeBlocks] = {"small": _FreeBlocks(), "large": _FreeBlocks()}
        self._used: dict[int, _Block] = {}
        self._ends: dict[Pool, _Block] = {}
        """The last block of each pool's expandable segment."""
        self._segments: dict[int, int] = {}
        """The size of each segment, by its number."""
        self._next_address = 0
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_allocated_bytes = 0
        self.peak_reserved_bytes = 0

    def use(self, event: int, fragmentation: float, failed: OutOfMemory | None) -> AllocatorUse:
        return AllocatorUse(
            self.peak_allocated_bytes,
            self.peak_reserved_bytes,
            event,
            fragmentation,
            len(self._segments),
            failed,
        )

    def apply(self, event: AllocationEvent) -> bool:
        """Apply the event; False if the allocation does not fit."""
        if event.size_bytes == 0:
            if event.key not in self._used:
                raise ValueError(f"allocation {event.key} is freed, but was not allocated")
            self._release(self._used.pop(event.key))
            return True
        if event.key in self._used:
            raise ValueError(f"allocation {event.key} is allocated a second time")
        block = self._take(rounded(event.size_bytes))
        if block is None:
            return False
        self._used[event.key] = block
        self.allocated_bytes += block.size_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return True

    def _take(self, size_bytes: int) -> _Block | None:
        pool: Pool = "small" if size_bytes <= SMALL_BYTES else "large"
        block = self._free[pool].fitting(size_bytes, self._ends.get(pool))
        if block is not None:
            self._free[pool].remove(block)
        else:
            block = self._grown(pool, size_bytes)
            if block is None:
                return None
        self._split(block, size_bytes)
        return block

    def _grown(self, pool: Pool, size_bytes: int) -> _Block | None:
        """Return a block in new memory of the driver; None if the capacity does not allow it."""
        grow = self._expanded if self._is_expandable else self._new_segment
        block = grow(pool, size_bytes)
        if block is None and self._return_free_segments():
            block = grow(pool, size_bytes)
        return block

    def _fits(self, more_bytes: int) -> bool:
        return self._capacity_bytes is None or self.reserved_bytes + more_bytes <= self._capacity_bytes

    def _new_segment(self, pool: Pool, size_bytes: int) -> _Block | None:
        size = segment_bytes(size_bytes)
        if not self._fits(size):
            return None
        number = self._next_address
        block = _Block(pool, number, number, size)
        self._next_address += size
        self._segments[number] = size
        self.reserved_bytes += size
        return block

    def _expanded(self, pool: Pool, size_bytes: int) -> _Block | None:
        """Return the free end of the pool's segment, extended as needed."""
        end = self._ends.get(pool)
        usable = end if end is not None and end.is_free else None
        missing = size_bytes - (usable.size_bytes if usable is not None else 0)
        more = _up(missing, SMALL_SEGMENT_BYTES if pool == "small" else LARGE_SEGMENT_BYTES)
        if not self._fits(more):
            return None
        self.reserved_bytes += more
        if usable is not None:
            self._free[pool].remove(usable)
            usable.size_bytes += more
            self._segments[usable.segment] += more
            return usable
        # The reserved address space is far larger than the segment may become.
        segment = end.segment if end is not None else (0 if pool == "small" else 1 << 60)
        address = end.address + end.size_bytes if end is not None else segment
        block = _Block(pool, segment, address, more, previous=end)
        if end is not None:
            end.following = block
        self._segments[segment] = self._segments.get(segment, 0) + more
        self._ends[pool] = block
        return block

    def _split(self, block: _Block, size_bytes: int) -> None:
        """Split off the rest of the block as free, if it is large enough to be used."""
        remaining = block.size_bytes - size_bytes
        is_small = block.pool == "small" or self._is_expandable
        if remaining < BLOCK_BYTES if is_small else remaining <= SMALL_BYTES:
            return
        rest = _Block(block.pool, block.segment, block.address + size_bytes, remaining)
        rest.previous, rest.following = block, block.following
        if block.following is not None:
            block.following.previous = rest
        block.following, block.size_bytes = rest, size_bytes
        if self._ends.get(block.pool) is block:
            self._ends[block.pool] = rest
        self._free[block.pool].add(rest)

    def _release(self, block: _Block) -> None:
        """Free a block and merge it with free neighbours."""
        self.allocated_bytes -= block.size_bytes
        for other in (block.previous, block.following):
            if other is not None and other.is_free:
                self._free[block.pool].remove(other)
                block = self._merged(block, other)
        self._free[block.pool].add(block)

    def _merged(self, block: _Block, other: _Block) -> _Block:
        first, second = (other, block) if block.previous is other else (block, other)
        first.size_bytes += second.size_bytes
        first.following = second.following
        if second.following is not None:
            second.following.previous = first
        if self._ends.get(first.pool) is second:
            self._ends[first.pool] = first
        return first

    def _return_free_segments(self) -> bool:
        """Return whole free segments to the driver, and whole free pages at the end of expandable ones."""
        before = self.reserved_bytes
        for pool, free in self._free.items():
            for block in list(free.by_address.values()):
                if self._is_expandable and block is self._ends.get(pool):
                    self._return_end(block)
                elif not self._is_expandable and block.previous is None and block.following is None:
                    free.remove(block)
                    self.reserved_bytes -= self._segments.pop(block.segment)
        return self.reserved_bytes < before

    def _return_end(self, end: _Block) -> None:
        part_of_page = end.size_bytes % (SMALL_SEGMENT_BYTES if end.pool == "small" else LARGE_SEGMENT_BYTES)
        returned = end.size_bytes - part_of_page
        self._free[end.pool].remove(end)
        self.reserved_bytes -= returned
        self._segments[end.segment] -= returned
        if part_of_page:
            end.size_bytes = part_of_page
            self._free[end.pool].add(end)
        elif end.previous is not None:
            end.previous.following = None
            self._ends[end.pool] = end.previous
        else:
            del self._ends[end.pool], self._segments[end.segment]
