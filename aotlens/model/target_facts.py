"""Small records of a target: side effects, the cache's answer, how its facts are known.  Stdlib only."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.source import Site

__all__ = ["CacheAnswer", "Known", "Origin", "SideEffect", "SideEffectHandling"]

SideEffectHandling = Literal["bound", "set"]


@dataclass(frozen=True, slots=True)
class SideEffect:
    """One side effect of the function outside of it, which each compiled call repeats."""

    name: str
    """The name or item, as the user writes it: `self.last`, `history[0]`, `state['keys']`."""
    handling: SideEffectHandling
    """The wrapper's change: it binds the name, or sets the item of a list or dict."""
    outputs: tuple[int, ...]
    """The row of `Target.outputs` that it then holds."""
    reason: str
    sites: tuple[Site, ...]
    """The first expression that binds it."""


CacheOutcome = Literal["hit", "miss", "not stored"]


@dataclass(frozen=True, slots=True)
class CacheAnswer:
    """Whether a compiled result was found on disk, or why it is not stored for later runs."""

    outcome: CacheOutcome
    """`miss` where the result was stored for later runs, `not stored` where it was not."""
    reason: str = ""
    """Why it is not stored, in the user's words; empty else."""
    cold_ms: float | None = None
    """On a hit, the compile time without the cache."""


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
