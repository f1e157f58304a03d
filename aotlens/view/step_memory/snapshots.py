"""Describe a memory snapshot in words, the same for text and for rows of other front ends."""

from collections.abc import Iterator

from aotlens.model.memory_snapshot import Holder, MemorySnapshot
from aotlens.model.spans import shown_path
from aotlens.view.quantities import counted, human_bytes

__all__ = ["holder_words", "snapshot_lines"]

MOST_LINES = 15


def snapshot_lines(snapshot: MemorySnapshot, *, is_full: bool = False) -> Iterator[str]:
    """Yield what failed, what holds the memory, and what is reserved without being used."""
    failure = snapshot.failure
    if failure is not None:
        where = f" at {shown_path(failure.file)}:{failure.line} in {failure.function}" if failure.file else ""
        requested = human_bytes(failure.size_bytes)
        yield f"out of memory on device {snapshot.device}: {requested} were asked for{where}"
        if failure.free_bytes is not None:
            yield (
                f"  the GPU had {human_bytes(failure.free_bytes)} free outside of the memory that torch"
                " reserved"
            )
    else:
        yield f"device {snapshot.device}: no allocation failed while allocations were recorded"
    yield (
        f"  {human_bytes(snapshot.reserved_bytes)} reserved, {human_bytes(snapshot.allocated_bytes)} of it in"
        f" use; {human_bytes(snapshot.unused_bytes)} reserved and free, in blocks of at most"
        f" {human_bytes(snapshot.largest_free_bytes)}"
    )
    if failure is not None and snapshot.largest_free_bytes < failure.size_bytes <= snapshot.unused_bytes:
        yield (
            "  enough was free, but in pieces: with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True segments"
            " grow instead"
        )
    if failure is not None and snapshot.largest_free_bytes >= failure.size_bytes:
        yield "  a free block is large enough: it was freed after the failure, or belongs to another stream"
    yield ""
    yield "Alive, by the line that allocated it"
    shown = snapshot.holders if is_full else snapshot.holders[:MOST_LINES]
    for holder in shown:
        size, blocks = human_bytes(holder.size_bytes), counted(holder.blocks, "block")
        yield f"  {size:>10}  {blocks:>12}  {holder_words(holder)}"
    if rest := snapshot.holders[len(shown) :]:
        size_bytes = sum(holder.size_bytes for holder in rest)
        yield f"  {human_bytes(size_bytes):>10}  of {counted(len(rest), 'more line')} (--full)"


def holder_words(holder: Holder) -> str:
    """`forward  model.py:41 in forward`."""
    if holder.file:
        return f"{holder.phase}  {shown_path(holder.file)}:{holder.line} in {holder.function}"
    if holder.phase == "not recorded":
        return "allocated before recording began, or without stacks"
    return f"{holder.phase}  no frame of yours in the stack"
