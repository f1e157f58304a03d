"""Records of what a function can read besides its arguments, before the recording.

Invariant: they hold the user's own objects, and a shallow copy of each container.
"""

import functools
from collections import deque
from collections.abc import MutableMapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from aotlens.capture.free_variables.hidden_state import HiddenState
from aotlens.capture.free_variables.namespaces import value_at

CacheWrapper = functools._lru_cache_wrapper
"""The type of every function under `functools.lru_cache` or `functools.cache`."""
CONTAINERS = (list, dict, set, deque)


@dataclass(frozen=True, slots=True)
class Binding:
    """A name that the function can read, and its value."""

    kind_text: str
    """For a message: `the global`, `the attribute`, `the closure variable`."""
    name: Any
    """The name; for an item its key in a dict, or its position in a list."""
    store: Any
    """The dictionary, list, class or cell that binds the name."""
    value: Any
    content: Any = None
    """A shallow copy of a container; None for every other value."""
    foreign: bool = False
    """Whether it is an attribute of torch's or a package's object, which manages its own state."""

    requires_grad: bool = False
    """Whether the value is a tensor that requires grad."""

    outer_keys: tuple[Any, ...] = ()
    """For an item: the name and the keys that lead to its container."""

    is_read: bool = True
    """Whether the code may read the name; False if it only binds it."""

    def now(self) -> Any:
        """Return the current value of the name; MISSING if it is not bound."""
        return value_at(self.store, self.name)

    @property
    def keys(self) -> tuple[Any, ...]:
        """The name in the user's code, and the keys from there."""
        return (*self.outer_keys, self.name)

    @property
    def path(self) -> str:
        """`last`; for an item `feats['first']`."""
        first, *rest = self.keys
        return first + "".join(f"[{key!r}]" for key in rest)


@dataclass(frozen=True, slots=True)
class Instance:
    """The attributes of a user's object, or the submodules of a layer."""

    store: MutableMapping[str, Any]
    before: dict[str, Any]
    """A shallow copy."""
    kind: type
    """The object's class."""
    is_read: bool = True
    """Whether a later call requires the same names."""


@dataclass(frozen=True, slots=True)
class ReachableState:
    """Everything that one function can read."""

    bindings: tuple[Binding, ...]
    instances: tuple[Instance, ...]
    codes: tuple[CodeType, ...] = ()
    """The user's reachable code objects, without nested functions."""
    caches: "tuple[CacheWrapper[Any], ...]" = ()
    hidden_states: tuple[HiddenState, ...] = ()

    def name_of(self, value: Any) -> str:
        """Return the user's name for an object, or the name of its class."""
        return next(
            (binding.path for binding in self.bindings if binding.value is value), type(value).__name__
        )


NOTHING_REACHABLE = ReachableState((), ())
