"""The job of the child of `aotlens fit`.  Stdlib only."""

from dataclasses import dataclass, field

__all__ = ["FIT_CHILD", "FitJob"]

FIT_CHILD = "aotlens.fit.child"


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
