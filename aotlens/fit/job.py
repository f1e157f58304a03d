"""The job of the child of `aotlens fit`.  Stdlib only."""

from dataclasses import dataclass, field

__all__ = ["DEFAULT_BANDWIDTH_GB_PER_S", "FIT_CHILD", "FitJob"]

FIT_CHILD = "aotlens.fit.child"
DEFAULT_BANDWIDTH_GB_PER_S = 300.0
"""Assumed between ranks unless the user states another."""


@dataclass(frozen=True, slots=True)
class FitJob:
    """One run of a script whose memory is observed."""

    path: str
    argv: tuple[str, ...] = ()
    gpu: str | None = None
    is_real: bool = False
    """Run with real tensors."""
    to_end: bool = False
    """Run the script to its end instead of until its steps repeat."""
    texts: dict[str, str] = field(default_factory=dict)
    """Edited files, which replace those on disk."""
    rank: int | None = None
    """The rank as which the script runs, without the other ranks; None for a script on one device."""
    world_size: int = 1
    """The number of ranks."""
    bandwidth_gb_per_s: float = DEFAULT_BANDWIDTH_GB_PER_S
    """What a rank sends to the next one of a ring, in 10^9 bytes a second."""
