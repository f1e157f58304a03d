"""How a fact of a report that was built from a log is known.  Stdlib only."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Known", "Origin"]

Known = Literal["logged", "derived", "unknown"]
"""`logged`: torch wrote it; `derived`: computed from what torch wrote; `unknown`: neither."""


@dataclass(frozen=True, slots=True)
class Origin:
    """How one kind of fact is known."""

    fact: str
    """`saved values`, `lines of kernels`."""
    known: Known
    source: str
    """The records that it comes from; of an unknown fact, why it is unknown."""
