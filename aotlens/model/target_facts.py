"""Small records of a target: side effects, the cache's answer, how its facts are known.  Stdlib only."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.source import Site

Leaving = Literal["bound", "set", "appended", "refilled", "removed", "emptied"]


@dataclass(frozen=True, slots=True)
class Left:
    """One side effect of the function outside of it, which each compiled call repeats."""

    place: str
    """The changed object or name, as the user writes it: `self.last`, `history[0]`, `state['keys']`; an item
    of a list by its index after the first call."""
    handling: Leaving
    """The wrapper's change: it binds the name, sets the item of a dict, appends to a list, exchanges a list's
    items, removes a name or an item, empties a container."""
    outputs: tuple[int, ...]
    """The rows of `Target.outputs` that it then holds, several for a tuple or a dict of them; empty for a
    removal."""
    carried: bool
    """Whether a call begins with the tensor that the call before stored there."""
    reason: str
    sites: tuple[Site, ...]
    """The expressions that write there; where data decides which, all that may."""


ReuseOutcome = Literal["hit", "miss", "not kept"]


@dataclass(frozen=True, slots=True)
class Reuse:
    """Whether a compiled result was found on disk, or why it is not stored for later runs."""

    outcome: ReuseOutcome
    """`miss` where the result was stored for later runs, `not kept` where it was not."""
    reason: str = ""
    """Why it is not stored, in the user's words; empty else."""
    cold_ms: float | None = None
    """On a hit, the compile time without the cache."""


__all__ = ["Known", "Origin"]

Known = Literal["logged", "derived", "unknown"]
"""`logged`: torch wrote it; `derived`: computed from torch's records; `unknown`: neither."""


@dataclass(frozen=True, slots=True)
class Origin:
    """How one kind of fact is known."""

    fact: str
    """`saved values`, `lines of kernels`."""
    known: Known
    source: str
    """The records that it comes from; for an unknown fact, why it is unknown."""
