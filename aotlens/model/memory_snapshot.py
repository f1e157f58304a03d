"""What held a GPU's memory when an allocation failed, and what was predicted for it.

Invariant: plain data, standard library only.  The holders of a device add up to its bytes in use, and each
predicted storage counts for one holder at most.
"""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.fit import FitMoment, FitPlan

__all__ = ["FailedAllocation", "FailureMatch", "Holder", "HolderPhase", "MatchedHolder", "MemorySnapshot"]

HolderPhase = Literal["parameters", "forward", "compiled code", "backward", "optimizer", "not recorded"]
"""Where a block was allocated, by its stack: `parameters` if a module is moved or made on the GPU, and `not
recorded` for a block from before the recording, or without stacks.
"""
LEAST_SHARE = 0.01
"""Of the held bytes: a smaller difference is not named."""
LEAST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Holder:
    """The blocks that one line of the user's allocated."""

    phase: HolderPhase
    file: str
    """Empty if no frame of the user's is in the stack."""
    line: int
    function: str
    size_bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class FailedAllocation:
    """The last allocation that failed."""

    size_bytes: int
    """The requested size."""
    free_bytes: int | None
    """The driver's free memory; None if the file does not say."""
    file: str
    line: int
    function: str
    phase: HolderPhase = "forward"


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """The memory of one device."""

    device: int
    reserved_bytes: int
    """The sum of the segments."""
    allocated_bytes: int
    """The sum of the blocks in use."""
    largest_free_bytes: int
    """The largest free block within a segment."""
    holders: tuple[Holder, ...]
    """The largest first; they add up to the allocated bytes."""
    failure: FailedAllocation | None
    """None if nothing failed while allocations were recorded."""

    @property
    def unused_bytes(self) -> int:
        """Return the reserved bytes that are not in use: fragmentation, and freed blocks."""
        return self.reserved_bytes - self.allocated_bytes

    @property
    def capacity_bytes(self) -> int:
        """Return the most that torch could reserve: its segments, and what the driver had free."""
        free_bytes = self.failure.free_bytes if self.failure is not None else None
        return self.reserved_bytes + (free_bytes or 0)


@dataclass(frozen=True, slots=True)
class MatchedHolder:
    """The blocks of one line, and what the prediction has for it."""

    holder: Holder
    predicted_bytes: int
    kinds: tuple[tuple[str, int], ...] = ()
    """The predicted bytes by kind, the largest first."""

    @property
    def unexplained_bytes(self) -> int:
        return max(0, self.holder.size_bytes - self.predicted_bytes)


@dataclass(frozen=True, slots=True)
class FailureMatch:
    """Who held memory, held and predicted."""

    script: str
    predicted_at: FitMoment
    """The compared moment of the predicted step."""
    when: str
    """Why this moment, in words: `when the failing line runs`, `at its peak`."""
    held_bytes: int
    predicted_bytes: int
    """Alive at that moment, in blocks, without the allocation that failed."""
    holders: tuple[MatchedHolder, ...]
    """The largest first."""
    not_held: tuple[tuple[str, int], ...] = ()
    """Predicted kinds that no holder explains, with their bytes."""
    failed_bytes: int | None = None
    """The requested size of the allocation that failed; None if none did."""
    capacity_bytes: int = 0
    """The most that torch could reserve on the device."""
    step_bytes: int = 0
    """What the predicted step reserves."""
    avoided_by: FitPlan | None = None
    """The cheapest edits with which the step would have fitted beside what the prediction does not explain;
    None where no allocation failed, or where the predicted step fits."""

    @property
    def unexplained(self) -> tuple[MatchedHolder, ...]:
        """Return the holders with much more than predicted, the largest excess first."""
        least_bytes = max(LEAST_BYTES, int(LEAST_SHARE * self.held_bytes))
        rows = [row for row in self.holders if row.unexplained_bytes >= least_bytes]
        return tuple(sorted(rows, key=lambda row: -row.unexplained_bytes))

    @property
    def unexplained_bytes(self) -> int:
        """Return the bytes of these holders that the prediction does not have."""
        return sum(row.unexplained_bytes for row in self.unexplained)

    @property
    def target_bytes(self) -> int:
        """Return what the step may reserve beside the unexplained bytes."""
        return max(0, self.capacity_bytes - self.unexplained_bytes)
