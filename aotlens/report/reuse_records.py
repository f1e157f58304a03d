"""What the cache of compiled results did for a target."""

from dataclasses import dataclass
from typing import Literal

ReuseOutcome = Literal["hit", "miss", "not kept"]


@dataclass(frozen=True, slots=True)
class Reuse:
    """Whether a result was found on disk, or why there is none for later runs."""

    outcome: ReuseOutcome
    """`miss` where the result is there for later runs, `not kept` where it is not."""
    reason: str = ""
    """Why it is not kept, in the user's words; empty else."""
    cold_ms: float | None = None
    """On a hit, what compiling took when the result was not there."""
