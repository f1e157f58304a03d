"""Small records of a target: side effects, the cache's answer, how its facts are known.  Stdlib only."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.source import Site

Leaving = Literal["bound", "set", "appended", "refilled", "removed", "emptied", "accumulated"]


@dataclass(frozen=True, slots=True)
class Left:
    """One place outside of the function that it changes, and that each compiled call changes again."""

    place: str
    """In the user's own names: `self.last`, `history[0]`, `state['keys']`; an item of a list as the first
    call left it."""
    handling: Leaving
    """What the wrapper does there: binds the name, sets the item of a dict, appends to a list, exchanges what
    a list holds, removes a name or an item, empties a container, adds to
    the gradient that it finds."""
    outputs: tuple[int, ...]
    """The rows of `Target.outputs` that it then holds, several for a tuple or a dict of them; empty for what
    is taken away."""
    carried: bool
    """Whether a call begins with the tensor that the one before left there."""
    reason: str
    sites: tuple[Site, ...]
    """The expressions that write there; where only the data tells which, all that may."""


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
