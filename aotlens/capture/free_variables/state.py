"""Records of what a function can read besides its arguments, before the recording, and of what it rebinds.

Invariant: they hold the user's own objects, and a shallow copy of each container.  Iterators, and Python's
and NumPy's RNG, have state that no name reaches: a function that advances it is unsupported, since a compiled
call would repeat the recording's numbers and items.  RNG state is restored; an iterator cannot be rewound.
"""

import functools
import gc
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, tee
from operator import length_hint
from types import CodeType
from typing import Any

import torch

from aotlens.capture.free_variables.stores import MISSING, bind, set_items, value_at
from aotlens.errors import UnsupportedError
from aotlens.ir.slots import OuterObject
from aotlens.model.report import Span
from aotlens.unsupported import unsupported

CacheWrapper = functools._lru_cache_wrapper
"""The type of every function under `functools.lru_cache` or `functools.cache`."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A name that the function can read, and its value."""

    kind_text: str
    """For a message: `the global`, `the attribute`, `the closure variable`."""
    name: str
    store: Any
    """The dictionary, class, cell or object that binds the name."""
    value: Any
    foreign: bool = False
    """Whether it is an attribute of torch's or a package's object, which manages its own state."""

    requires_grad: bool = False
    """Whether the value is a tensor that requires grad."""

    is_read: bool = True
    """Whether the code may read the name; False if it only binds it."""

    @property
    def keys(self) -> tuple[Any, ...]:
        return (self.name,)

    @property
    def description(self) -> str:
        return f"{self.kind_text} `{self.name}`"

    def now(self) -> Any:
        """Return the current value of the name; MISSING if it is not bound."""
        return value_at(self.store, self.name)

    def set(self, value: Any) -> None:
        if value is not MISSING or self.now() is not MISSING:
            bind(self.store, self.name, value)

    def restore(self) -> None:
        self.set(self.value)


@dataclass(frozen=True, slots=True)
class Contents:
    """The items of a container that the function can read."""

    keys: tuple[Any, ...]
    """The user's name, and the keys that lead from its value to the container."""
    store: Any
    """The container."""
    before: Any
    """A shallow copy."""
    owner: Any = None
    """The store that binds the name to the container itself; None for an inner container."""
    foreign: bool = False
    """As of the binding."""
    expression: str = ""
    """For a container among the arguments: `args[0]['x']`."""

    @property
    def description(self) -> str:
        return f"the {type(self.store).__name__} `{path_of(self.keys)}`"

    def set(self, items: Any) -> None:
        set_items(self.store, items)

    def restore(self) -> None:
        self.set(self.before)


def path_of(keys: tuple[Any, ...]) -> str:
    """Return `last`; for an item `feats['first']`."""
    first, *rest = keys
    return first + "".join(f"[{key!r}]" for key in rest)


@dataclass(frozen=True, slots=True)
class Instance:
    """The attributes of a user's object, or the submodules of a layer."""

    store: Any
    before: dict[str, Any]
    """A shallow copy."""
    is_read: bool = True
    """Whether a later call requires the same names."""


@dataclass(frozen=True, slots=True)
class ReachableState:
    """Everything that one function can read."""

    bindings: tuple[Binding, ...]
    contents: tuple[Contents, ...]
    instances: tuple[Instance, ...]
    codes: tuple[CodeType, ...] = ()
    """The user's reachable code objects, without nested functions."""
    caches: "tuple[CacheWrapper[Any], ...]" = ()
    hidden_states: "tuple[HiddenState, ...]" = ()

    def name_of(self, value: Any) -> str:
        """Return the user's name for an object, or the name of its class."""
        return next(
            (binding.name for binding in self.bindings if binding.value is value), type(value).__name__
        )


NOTHING_REACHABLE = ReachableState((), (), ())


@dataclass(frozen=True, slots=True)
class Rebinding:
    """A name, or an item of a container, that each call binds to another value."""

    expression: str
    """The namespace or container as an expression of the wrapper: `args[0]['x']`; or a name for `store`."""
    store: Any
    """The namespace or container itself; None if it is part of an argument."""
    key: Any
    before: Any
    """The value before the call, whose kind later calls require of a tensor; MISSING if there was none."""
    is_item: bool
    """Whether `store` is a container of the user's, instead of a namespace."""
    description: str
    """For a message: `the attribute `last``."""
    user_name: str
    """`self.last`, `state['keys']`."""
    span: Span | None
    """The user's expression that binds it, or the function."""


def rebound_tensors(rebindings: tuple[Rebinding, ...]) -> Mapping[int, Rebinding]:
    """Return the rebindings of free variables that were tensors, by the identity of the former tensor."""
    return {
        id(rebinding.before): rebinding
        for rebinding in rebindings
        if rebinding.store is not None and isinstance(rebinding.before, torch.Tensor)
    }


def read_of_rebound(rebinding: Rebinding) -> UnsupportedError:
    """Return the error for a function that reads a tensor and binds its name to another one."""
    return unsupported("rebound-tensor-is-read", rebinding.span, name=rebinding.user_name)


@dataclass(frozen=True, slots=True)
class OutputWithUpdates:
    """A function's output and what it binds outside."""

    result: Any
    rebindings: tuple[Rebinding, ...] = ()
    leaves: tuple[tuple[str, Any], ...] = ()
    """The value of each rebinding, with a name; then the rebound buffers."""
    rebound: tuple[str, ...] = ()
    """Buffers that the module bound to another tensor."""
    existing_containers: tuple[tuple[tuple[int, ...], OuterObject], ...] = ()
    """Containers in the output that are the caller's own, or that also exist elsewhere."""


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
    """Return the state of a generator of Python or NumPy, or the position of an iterator."""
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
