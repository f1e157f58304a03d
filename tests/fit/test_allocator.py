"""The model of CUDA's caching allocator: its sizes, its rules, and what always holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlens.fit.allocator import AllocationEvent, AllocatorUse, replay, rounded, segment_bytes

KIB, MIB = 1 << 10, 1 << 20


def events(*sizes: int) -> list[AllocationEvent]:
    """Allocations by size, numbered from 1 in order; `-n` frees the n-th."""
    allocations, count = [], 0
    for size in sizes:
        if size > 0:
            count += 1
            allocations.append(AllocationEvent(count, size))
        else:
            allocations.append(AllocationEvent(-size, 0))
    return allocations


def reserved(*sizes: int, **settings: bool) -> int:
    return replay(events(*sizes), **settings).peak_reserved_bytes


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (21 * MIB - 512, 21 * MIB - 512, 22 * MIB),
    ],
)
def test_sizes_of_blocks_and_segments(size: int, block: int, segment: int) -> None:
    assert (rounded(size), segment_bytes(block)) == (block, segment)
    use = replay(events(size))
    assert (use.peak_allocated_bytes, use.peak_reserved_bytes, use.segments) == (block, segment, 1)


def test_small_blocks_share_a_segment_and_large_ones_another() -> None:
    assert reserved(*[512 * KIB] * 4) == 2 * MIB
    assert reserved(*[512 * KIB] * 5) == 4 * MIB
    assert reserved(512, 4 * MIB, 4 * MIB) == 22 * MIB


def test_a_freed_block_is_used_again() -> None:
    assert reserved(30 * MIB, -1, 30 * MIB) == 30 * MIB
    assert reserved(30 * MIB, -1, 25 * MIB, 4 * MIB) == 30 * MIB  # the rest of the split block serves too


def test_a_rest_of_a_large_block_up_to_1_mib_is_not_split_off() -> None:
    assert replay(events(19 * MIB)).peak_allocated_bytes == 20 * MIB
    assert replay(events(19 * MIB - 512)).peak_allocated_bytes == 19 * MIB - 512


def test_neighbours_merge_when_they_are_freed() -> None:
    assert reserved(4 * MIB, 4 * MIB, 4 * MIB, -1, -2, 8 * MIB) == 20 * MIB
    assert reserved(4 * MIB, 4 * MIB, 4 * MIB, -1, -3, 8 * MIB) == 20 * MIB  # behind the third there is room
    holes = [4 * MIB] * 5 + [-1, -3, -5]
    assert reserved(*holes, 8 * MIB) == 40 * MIB  # three holes of 4 MiB do not hold 8


def test_fragmentation_is_the_unused_share_at_the_peak() -> None:
    use = replay(events(*[4 * MIB] * 5, -1, -3, -5, 8 * MIB))
    assert use.fragmentation == pytest.approx(1 - 16 / 40)
    assert use.peak_reserved_event == 8


def test_whole_free_segments_are_returned_before_an_allocation_fails() -> None:
    use = replay(events(30 * MIB, -1, 40 * MIB), capacity_bytes=50 * MIB)
    assert (use.out_of_memory, use.peak_reserved_bytes) == (None, 40 * MIB)
    held = replay(events(4 * MIB, 30 * MIB, 40 * MIB), capacity_bytes=80 * MIB)
    assert held.out_of_memory is not None
    assert (held.out_of_memory.event, held.out_of_memory.reserved_bytes) == (2, 50 * MIB)


def test_expandable_segments_leave_no_holes_between_segments() -> None:
    growing = (12 * MIB, -1, 14 * MIB, -2, 16 * MIB)
    assert reserved(*growing) == (12 + 14 + 16) * MIB
    assert reserved(*growing, is_expandable=True) == 20 * MIB


def test_the_end_of_an_expandable_segment_is_used_last() -> None:
    """It alone can grow, so 10 MiB go to the hole of 14 MiB although the end is smaller."""
    use = (14 * MIB, MIB + 1, 14 * MIB, -1, 10 * MIB)
    assert reserved(*use, is_expandable=True) == 40 * MIB
    assert reserved(*use, 14 * MIB, is_expandable=True) == 60 * MIB


def test_only_whole_pages_of_an_expandable_segment_are_returned() -> None:
    events = [AllocationEvent(1, 12 * MIB), AllocationEvent(2, 25 * MIB), AllocationEvent(2, 0)]
    events.append(AllocationEvent(3, MIB))
    use = replay(events, 41 * MIB, is_expandable=True)
    assert use.out_of_memory is None
    failed = replay(events, 40 * MIB - 1, is_expandable=True).out_of_memory
    assert failed is not None
    assert (failed.event, failed.reserved_bytes) == (1, 20 * MIB)


def test_a_sequence_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="allocation 7 is freed"):
        replay([AllocationEvent(7, 0)])
    with pytest.raises(ValueError, match="allocation 1 is allocated a second time"):
        replay([AllocationEvent(1, 8), AllocationEvent(1, 8)])


STEPS = st.lists(st.tuples(st.integers(1, 40 * MIB), st.integers(0, 100)), max_size=60)


def random_events(steps: list[tuple[int, int]]) -> list[AllocationEvent]:
    """Allocations, each followed by the free of an earlier one where the second number says so."""
    allocations: list[AllocationEvent] = []
    alive: list[int] = []
    for key, (size, choice) in enumerate(steps):
        allocations.append(AllocationEvent(key, size))
        alive.append(key)
        if choice < 60:
            allocations.append(AllocationEvent(alive.pop(choice % len(alive)), 0))
    return allocations


def exact_peak(sequence: list[AllocationEvent]) -> int:
    """The largest sum of requests alive."""
    alive: dict[int, int] = {}
    peak = 0
    for event in sequence:
        if event.size_bytes:
            alive[event.key] = event.size_bytes
        else:
            del alive[event.key]
        peak = max(peak, sum(alive.values()))
    return peak


@pytest.mark.rotates
@given(STEPS, st.booleans())
def test_reserved_covers_allocated_covers_what_was_asked_for(
    steps: list[tuple[int, int]], is_expandable: bool
) -> None:
    sequence = random_events(steps)
    use = replay(sequence, is_expandable=is_expandable)
    assert use.peak_reserved_bytes >= use.peak_allocated_bytes >= exact_peak(sequence)
    assert use.peak_reserved_bytes % (2 * MIB) == 0
    assert 0 <= use.fragmentation < 1


@given(STEPS, st.booleans())
def test_what_the_peak_needed_is_enough_and_nothing_is_not(
    steps: list[tuple[int, int]], is_expandable: bool
) -> None:
    sequence = random_events(steps)
    use = replay(sequence, is_expandable=is_expandable)
    assert replay(sequence, use.peak_reserved_bytes, is_expandable=is_expandable).out_of_memory is None
    if sequence:
        failed: AllocatorUse = replay(sequence, 0, is_expandable=is_expandable)
        assert failed.out_of_memory is not None
        assert failed.out_of_memory.event == 0


@given(STEPS, st.booleans())
def test_after_everything_is_freed_one_block_per_segment_is_left(
    steps: list[tuple[int, int]], is_expandable: bool
) -> None:
    """A block as large as all segments of a pool together fits once they are returned."""
    sequence = random_events(steps)
    freed = {event.key for event in sequence if not event.size_bytes}
    rest = [
        AllocationEvent(event.key, 0) for event in sequence if event.size_bytes and event.key not in freed
    ]
    use = replay(sequence, is_expandable=is_expandable)
    whole = [*sequence, *rest, AllocationEvent(-1, max(use.peak_reserved_bytes, 10 * MIB))]
    limit = max(use.peak_reserved_bytes, 10 * MIB) + (20 * MIB if is_expandable else 0)
    assert replay(whole, limit, is_expandable=is_expandable).out_of_memory is None
