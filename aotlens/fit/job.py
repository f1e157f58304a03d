"""What the child of `aotlens fit` needs to know.  Stdlib only."""

from dataclasses import dataclass

__all__ = ["FIT_CHILD", "FitJob"]

FIT_CHILD = "aotlens.fit.child"


@dataclass(frozen=True, slots=True)
class FitJob:
    """One run of a script whose memory is observed."""

    path: str
    argv: tuple[str, ...] = ()
    gpu: str | None = None
    is_real: bool = False
    """Run on tensors with memory."""
    to_end: bool = False
    """Run the script to its end rather than until its steps repeat."""
