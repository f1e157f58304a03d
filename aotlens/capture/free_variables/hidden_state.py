"""State that a call advances and no name reaches: iterators, Python's and numpy's RNG.

Invariant: a function that advances such state is unsupported, since a compiled call would repeat the
recording's numbers and items.  RNG state is restored; an iterator cannot be rewound.
"""

import gc
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, tee
from operator import length_hint
from typing import Any

MAX_DEPTH = 8
"""The maximum depth of iterators, and of tuples in them (`zip(a, map(f, b))`), to inspect."""

_TEE: type = type(tee(())[0])
_UNREADABLE = count()
"""Numbers for positions that cannot be read: each counts as advanced."""


@dataclass(frozen=True, slots=True)
class HiddenState:
    """An iterator or random number generator, before the recording."""

    owner: Any
    state: Any
    """A value whose `repr` differs after the owner was advanced."""

    @property
    def is_advanced(self) -> bool:
        return repr(_state_of(self.owner)) != repr(self.state)

    @property
    def is_iterator(self) -> bool:
        return isinstance(self.owner, Iterator)

    def restore(self) -> None:
        """Restore the state of a random number generator."""
        if hasattr(self.owner, "setstate"):
            self.owner.setstate(self.state)
        elif hasattr(self.owner, "set_state"):
            self.owner.set_state(self.state)
        elif not self.is_iterator:
            self.owner.bit_generator.state = self.state


def hidden_state_of(owner: Any) -> HiddenState | None:
    """Return the object's hidden state; None if it has none, or none that can be read."""
    state = _state_of(owner)
    return HiddenState(owner, state) if state is not None else None


def process_generators() -> list[HiddenState]:
    """Return the states of the global generators of `random` and `numpy.random`."""
    modules = [sys.modules[name] for name in ("random", "numpy.random") if name in sys.modules]
    return [HiddenState(module, _state_of(module)) for module in modules]


def _state_of(owner: Any) -> Any:
    kind = type(owner)
    if owner is random or issubclass(kind, random.Random):
        return owner.getstate()
    if owner is sys.modules.get("numpy.random") or kind.__module__.startswith("numpy.random"):
        if hasattr(owner, "get_state"):
            return owner.get_state()
        return owner.bit_generator.state if hasattr(owner, "bit_generator") else None
    if issubclass(kind, Iterator) and not kind.__dictoffset__:
        return _position(owner, MAX_DEPTH)
    return None


def _position(value: Any, depth: int) -> Any:
    """Return a value that changes when items are taken from an iterator, or from one that it reads."""
    if isinstance(value, (int, float, str)):
        return value
    if not depth or not isinstance(value, (tuple, Iterator)):
        return id(value)
    frame = getattr(value, "gi_frame", None)  # a generator's, which it refers to from now on
    number = next(_UNREADABLE) if isinstance(value, _TEE) else ""
    own = length_hint(value), frame and frame.f_lasti, repr(value) if isinstance(value, count) else number
    parts = value if isinstance(value, tuple) else gc.get_referents(value)
    return own, tuple(_position(part, depth - 1) for part in parts)
