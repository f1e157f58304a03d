"""State that a call advances and no name reaches: iterators, context variables, Python's and numpy's RNG.

Invariant: a function that advances such state is unsupported, since a compiled call would repeat the
recording's numbers and items.  RNG state and context variables are restored; an iterator cannot be rewound.
"""

import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import GeneratorType, ModuleType
from typing import Any

from aotlens.model.report import Span
from aotlens.unsupported import unsupported

MAX_DEPTH = 4
"""The maximum depth of nested iterators (`zip(a, map(f, b))`) to inspect."""


@dataclass(frozen=True, slots=True)
class HiddenState:
    """One object with hidden state, before the recording."""

    owner: Any
    state: Any
    """A value that differs after the object was advanced."""
    now: Callable[[], Any]
    """Returns that value as it is at the time of the call."""
    restore_state: Callable[[], object] | None
    """None for an iterator, which cannot be rewound."""


def hidden_state_of(owner: Any) -> HiddenState | None:
    """Return the object's hidden state; None if it has none, or none that can be read."""
    kind = type(owner)
    if issubclass(kind, random.Random):
        return _python_state(owner)
    if kind.__module__.startswith("numpy.random"):
        if kind.__name__ == "RandomState":
            return _numpy_state(owner)
        return _bit_generator_state(owner, owner.bit_generator) if kind.__name__ == "Generator" else None
    if kind is ContextVar:
        value = owner.get(None)
        return HiddenState(owner, id(value), lambda: id(owner.get(None)), lambda: owner.set(value))
    if issubclass(kind, Iterator) and not kind.__dictoffset__:
        position = _position(owner, MAX_DEPTH)
        return (
            None
            if position is None
            else HiddenState(owner, position, lambda: _position(owner, MAX_DEPTH), None)
        )
    return None


def process_generators() -> list[HiddenState]:
    """Return the states of the global generators of `random` and `numpy.random`."""
    numpy: Any = sys.modules.get("numpy.random")
    return [_python_state(random), *([_numpy_state(numpy)] if numpy is not None else [])]


def _python_state(owner: Any) -> HiddenState:
    state = owner.getstate()
    return HiddenState(owner, state, owner.getstate, lambda: owner.setstate(state))


def _numpy_state(owner: Any) -> HiddenState:
    state = owner.get_state()
    now = lambda: _comparable(owner.get_state())
    return HiddenState(owner, _comparable(state), now, lambda: owner.set_state(state))


def _comparable(state: Any) -> Any:
    return tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state)


def _bit_generator_state(owner: Any, bits: Any) -> HiddenState:
    state = bits.state
    return HiddenState(owner, repr(state), lambda: repr(bits.state), lambda: setattr(bits, "state", state))


def _position(iterator: Any, steps: int) -> Any:
    """Return a value that changes when items are consumed; None if there is none."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        if frame is None:
            return "ended"
        return frame.f_lasti, tuple(_part(value, steps) for value in frame.f_locals.values())
    parts = remaining_items(iterator)
    return tuple(_part(part, steps) for part in parts) if parts else None


def remaining_items(iterator: Any) -> tuple[Any, ...]:
    """Return the remaining items and the position of a builtin iterator; empty if they cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # copying itertools objects is deprecated
            return tuple(iterator.__reduce__()[1:])
    except TypeError:
        return ()


def _part(value: Any, steps: int) -> Any:
    if isinstance(value, (int, float, str)):
        return value
    if steps and isinstance(value, Iterator):
        return _position(value, steps - 1)
    if steps and isinstance(value, tuple):
        return tuple(_part(part, steps - 1) for part in value)
    return len(value) if isinstance(value, list) else id(value)


def changed_state_name(before: Iterable[HiddenState], name_of: Callable[[Any], str]) -> str:
    """Describe the state that a call advances; empty if it advances none."""
    changed_owners = (hidden.owner for hidden in before if hidden.now() != hidden.state)
    names = (owner.__name__ if isinstance(owner, ModuleType) else name_of(owner) for owner in changed_owners)
    return next((f"the state of `{name}`" for name in names), "")


def check_hidden_state(
    before: Iterable[HiddenState], name_of: Callable[[Any], str], span: Span | None
) -> None:
    """Check after the recording that no hidden state was advanced.

    Raises:
        UnsupportedError: a state has changed.
    """
    changed = [hidden for hidden in before if hidden.now() != hidden.state]
    for hidden in changed:
        if hidden.restore_state is not None:
            hidden.restore_state()
    for hidden in changed:
        name = hidden.owner.__name__ if isinstance(hidden.owner, ModuleType) else name_of(hidden.owner)
        if hidden.restore_state is None:
            raise unsupported("iterator", span, name=name)
        if isinstance(hidden.owner, ContextVar):
            raise unsupported("context-variable", span, name=name)
        raise unsupported("python-random", span, name=name)
