"""How names of torch are replaced for a while: by rows of a table, in scopes, and put back afterwards.

Invariant: a name is torch's own again as soon as nobody is inside a scope that replaces it.  Scopes may be
nested, entered by several threads, and left in any order: rows on one name are layers over the original.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from types import BuiltinMethodType, MethodType
from typing import Any

from aotlens.torch_api.patches.targets import MISSING, Target

__all__ = [
    "Current",
    "Patch",
    "Replace",
    "Scope",
    "around",
    "complete",
    "constant",
    "handled",
    "install",
    "patched",
    "routed",
    "static",
]

Current = Callable[[], Any]
"""Returns the innermost handler of a scope, for the thread that asks; None outside of the scope."""

Replace = Callable[[Any, Current], Any]
"""Makes the new value of a name from torch's own and from the handlers of the scope."""


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """One name of torch's, and what replaces it."""

    target: Target
    replace: Replace
    reason: str
    """Completes the sentence "torch is changed here because …"."""
    needs_loaded: bool = False
    """Whether the row counts only where somebody else has imported the module."""
    is_optional: bool = False
    """Whether some releases of torch, or builds of it, have no such name."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Rows that are needed at the same time."""

    name: str
    """Unique, in words: `trace`."""
    when: str
    """Completes the sentence "the rows are in force while …"."""
    rows: tuple[Patch, ...]
    """A row that stands in several scopes uses no handler."""
    every_thread: bool = False
    """Whether a handler counts for all threads, and not only for the one that entered the scope."""
    stays: str = ""
    """Why the rows are not put back; empty where they are."""


@contextmanager
def patched(scope: Scope, handler: Any = None) -> Iterator[None]:
    """Within the block the rows of a scope are in force, and `handler` is what their functions call."""
    stack = _handlers(scope)
    stack.append(handler)
    try:
        with _LOCK:
            _enter(scope)
        yield
    finally:
        with _LOCK:
            _leave(scope)
        if scope.every_thread:
            stack.remove(handler)  # another thread may have entered it since
        else:
            stack.pop()


def install(scope: Scope) -> None:
    """Put the rows of a scope in force for the rest of the process; once, however often it is called."""
    with _LOCK:
        if scope.name not in _INSTALLED:
            _INSTALLED.add(scope.name)
            _enter(scope)


def complete(name: str) -> None:
    """Put rows of a scope in force whose modules were not loaded when it was entered."""
    active = _ACTIVE.get(name)
    if active is not None and active.waiting:
        with _LOCK:
            active.put(active.waiting)


def around(run: Callable[..., Any]) -> Replace:
    """Replace a function by `run(original, *args, **kwargs)`."""

    @wraps(run)
    def replace(original: Any, current: Current) -> Any:
        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # an error in torch's own function is not ours
            return run(original, *args, **kwargs)

        return call

    return replace


def handled(run: Callable[..., Any]) -> Replace:
    """Replace a function by `run(handler, original, *args, **kwargs)`; torch's own where nobody handles."""

    @wraps(run)
    def replace(original: Any, current: Current) -> Any:
        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            handler = current()
            if handler is not None:
                return run(handler, original, *args, **kwargs)
            return None if original is None else original(*args, **kwargs)  # torch's hooks are None until set

        return call

    return replace


def static(replace: Replace) -> Replace:
    """The same as a static method."""

    @wraps(replace)
    def replace_static(original: Any, current: Current) -> Any:
        return staticmethod(replace(original, current))

    return replace_static


def routed(name: str) -> Replace:
    """A function that calls `handler.NAME(original, *args, **kwargs)`; the original where nobody handles."""

    @handled
    def run(handler: Any, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(handler, name)(original, *args, **kwargs)

    run.__qualname__ = f"routed.{name}"
    return run


def constant(value: Any) -> Replace:
    """The same new value, whatever torch's own is."""
    return lambda original, current: value


class _Layers:
    """The rows in force on one name, over torch's own value.  Mutable: scopes add and remove rows."""

    def __init__(self, target: Target, holder: Any) -> None:
        self.target, self.holder = target, holder
        self._module = sys.modules.get(target.module)
        self.original: Any = MISSING
        self.rows: list[tuple[Patch, Current]] = []
        """The lowest layer first."""
        self.counts: dict[Patch, int] = {}
        """How many scopes have each row in force."""

    def is_loaded(self) -> bool:
        """Return True if the module is the one that was loaded when the name was looked up."""
        return sys.modules.get(self.target.module) is self._module

    def add(self, patch: Patch, current: Current) -> None:
        count = self.counts.get(patch, 0)
        if count == 0:
            if not self.rows:
                self.original = self.target.own(self.holder)
            self._put(patch, current)
            self.rows.append((patch, current))
        self.counts[patch] = count + 1

    def remove(self, patch: Patch) -> None:
        """Take a row off when the last scope with it leaves; the others are applied anew."""
        count = self.counts.pop(patch) - 1
        if count:
            self.counts[patch] = count
            return
        self.rows = [row for row in self.rows if row[0] is not patch]
        self.target.put(self.holder, self.original)
        for row in self.rows:
            self._put(*row)

    def _put(self, patch: Patch, current: Current) -> None:
        before = self.target.value(self.holder)
        original, made_for, value = _BUILT.get(patch, (MISSING, None, None))
        if made_for is not current or not _is_same(original, before):
            value = patch.replace(before, current)
            _BUILT[patch] = before, current, value
        self.target.put(self.holder, value)


def _is_same(first: Any, second: Any) -> bool:
    """Return True for one object; methods of one object are made anew each time that they are read."""
    return first is second or (type(first) in _METHODS and bool(first == second))


_METHODS = (MethodType, BuiltinMethodType)
_LOCK = threading.RLock()
_LAYERS: dict[Target, _Layers] = {}
"""By target: a name that torch has once has one entry."""
_BUILT: dict[Patch, tuple[Any, Current, Any]] = {}
"""By row, the value that it made last, behind what it was made from: to enter a scope again only sets
attributes.
"""


class _Active:
    """A scope that is in force, however often it was entered.  Mutable: it notes the rows, to undo them."""

    def __init__(self, scope: Scope) -> None:
        self.depth = 0
        self.current = _current(scope.name, scope.every_thread)
        self.entered: list[tuple[_Layers, Patch]] = []
        self.waiting: tuple[Patch, ...] = ()
        """Rows whose modules are not loaded."""

    def put(self, rows: tuple[Patch, ...]) -> None:
        """Apply the rows whose modules are loaded; the others wait."""
        waiting = []
        for patch in rows:
            layers = _layers_of(patch)
            if layers is None:
                waiting.append(patch)
            elif not patch.is_optional or layers.rows or patch.target.value(layers.holder) is not MISSING:
                layers.add(patch, self.current)
                self.entered.append((layers, patch))
        self.waiting = tuple(waiting)


_ACTIVE: dict[str, _Active] = {}
"""By name, the scopes that are in force."""
_INSTALLED: set[str] = set()
"""The names of those that stay."""


def _enter(scope: Scope) -> None:
    active = _ACTIVE.get(scope.name)
    if active is None:
        active = _ACTIVE[scope.name] = _Active(scope)
    active.depth += 1
    if active.depth == 1:
        active.put(scope.rows)
    elif active.waiting:
        active.put(active.waiting)


def _leave(scope: Scope) -> None:
    active = _ACTIVE[scope.name]
    active.depth -= 1
    if active.depth == 0:
        del _ACTIVE[scope.name]
        for layers, patch in reversed(active.entered):
            layers.remove(patch)


def _layers_of(patch: Patch) -> _Layers | None:
    """Return the layers on the name of a row; None where the row waits for its module."""
    layers = _LAYERS.get(patch.target)
    if layers is not None and (not patch.needs_loaded or layers.is_loaded()):
        return layers
    holder = patch.target.holder(load=not patch.needs_loaded)
    if holder is None:
        return None
    if layers is None or layers.holder is not holder:
        layers = _LAYERS[patch.target] = _Layers(patch.target, holder)
    return layers


class _Here(threading.local):
    """The handlers of each scope that this thread has entered."""

    def __init__(self) -> None:
        self.stacks: dict[str, list[Any]] = {}


_HERE = _Here()
_EVERYWHERE: dict[str, list[Any]] = {}
"""The handlers of each scope whose handlers count for all threads."""


def _handlers(scope: Scope) -> list[Any]:
    stacks = _EVERYWHERE if scope.every_thread else _HERE.stacks
    return stacks.setdefault(scope.name, [])


@cache
def _current(name: str, every_thread: bool) -> Current:
    """Return the function that returns a scope's handler; the same one each time, so values are made once."""

    def everywhere() -> Any:
        stack = _EVERYWHERE.get(name)
        return stack[-1] if stack else None

    def here() -> Any:
        stack = _HERE.stacks.get(name)
        return stack[-1] if stack else None

    return everywhere if every_thread else here
