"""Python state that a recording changed, and how to restore it: bindings, containers, `lru_cache` entries."""

import functools
import sys
from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, GeneratorType, MethodType
from typing import Any

import torch

from aotlens.capture.free_variables.guards import PLAIN, is_unchanged_binding, same_items
from aotlens.capture.free_variables.hidden_state import remaining_items
from aotlens.capture.free_variables.members import base_of, shallow_copy
from aotlens.capture.free_variables.namespaces import MISSING, filled_cells, namespace
from aotlens.capture.free_variables.state import Binding, CacheWrapper, Instance, ReachableState
from aotlens.capture.provenance.frames import is_installed_file
from aotlens.ir.program import Node
from aotlens.torch_api.fake.tensors import FakeTensor


@dataclass(frozen=True, slots=True)
class Change:
    """One binding or container that the recording changed."""

    binding: Binding
    now: Any
    """The new value of the binding; for a container, a copy of its new items."""
    old_items: Any
    """The container's items before; None if the name itself was rebound."""
    user_name: str = ""
    """The user's name for the binding; empty until it is needed."""

    @property
    def description(self) -> str:
        what = (
            self.binding.kind_text if self.old_items is None else f"the {type(self.binding.value).__name__}"
        )
        return f"{what} `{self.binding.path}`"


def changes_in(reachable: ReachableState) -> Iterator[Change]:
    seen: set[int] = set()
    named: set[tuple[int, Any]] = set()
    for binding in reachable.bindings:
        named.add((id(binding.store), binding.name))
        now = binding.now()
        if binding.content is not None and id(binding.value) not in seen:
            seen.add(id(binding.value))
            now_held = shallow_copy(binding.value)
            if not same_items(binding.value, binding.content) and _is_checked(binding, now_held):
                yield Change(binding, now_held, binding.content)
        if now is not binding.value and not _is_unchanged_binding(binding, now) and _is_checked(binding, now):
            yield Change(binding, now, None)
    for instance in reachable.instances:
        yield from _changed_attributes(instance, named)


def _is_unchanged_binding(binding: Binding, now: Any) -> bool:
    return binding.content is None and is_unchanged_binding(binding)


def _changed_attributes(instance: Instance, named: set[tuple[int, Any]]) -> Iterator[Change]:
    """Yield changes of attributes that no code names, or that are new."""
    store, before = instance.store, instance.before
    for name in dict.fromkeys((*before, *store)):
        now, then = store.get(name, MISSING), before.get(name, MISSING)
        if now is not then and (id(store), name) not in named:
            yield Change(Binding("the attribute", name, store, then), now, None)


def _is_checked(binding: Binding, now: Any) -> bool:
    """Return True if a change matters: packages manage their own objects, but must not store fake tensors."""
    return not binding.foreign or contains_fake(now)


def contains_fake(value: Any, known: Container[int] = ()) -> bool:
    """Return True if a value contains a fake tensor or an autograd node, other than the known ones."""
    waiting, seen = [value], set[int]()
    while waiting:
        part = waiting.pop()
        if type(part) is FakeTensor or isinstance(part, torch.autograd.graph.Node):
            if id(part) not in known:
                return True
            continue
        if id(part) not in seen and not isinstance(part, (*PLAIN, type, torch.Tensor)):
            seen.add(id(part))
            waiting.extend(_parts(part))
    return False


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from dict.values(value)
    elif isinstance(value, (list, tuple, set, deque)):
        yield from base_of(value).__iter__(value)
    elif isinstance(value, FunctionType):
        yield from (cell.cell_contents for _, cell in filled_cells(value))
    elif isinstance(value, MethodType):
        yield value.__self__
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, GeneratorType):
        yield from value.gi_frame.f_locals.values() if value.gi_frame is not None else ()
    elif isinstance(value, Iterator) and not type(value).__dictoffset__:
        yield from remaining_items(value)
    elif isinstance(value, torch.nn.Module) or not type(value).__module__.startswith("torch."):
        yield from (getattr(value, "__dict__", None) or {}).values()


def restore(change: Change) -> None:
    _bind(change.binding, change.binding.value, change.old_items)


def rebind(change: Change) -> None:
    if change.old_items is None:
        _bind(change.binding, change.now, None)
    else:
        _bind(change.binding, change.binding.value, change.now)


def _bind(binding: Binding, value: Any, content: Any) -> None:
    """Bind a name to a value, or set a container's items."""
    if content is not None:
        _set_items(value, content)
    elif value is MISSING:
        namespace(binding.store).pop(binding.name, None)
    else:
        namespace(binding.store)[binding.name] = value


def _set_items(container: Any, content: Any) -> None:
    base: Any = OrderedDict if isinstance(container, OrderedDict) else base_of(container)
    base.clear(container)
    if isinstance(container, dict):
        for key, value in content.items():
            base.__setitem__(container, key, value)
    else:
        (base.update if base is set else base.extend)(container, content)


@contextmanager
def initial_state(reachable: ReachableState) -> Iterator[None]:
    """Restore the state before the recording in the block, and the current state afterwards."""
    later = list(changes_in(reachable))
    for change in later:
        restore(change)
    try:
        yield
    finally:
        for change in list(changes_in(reachable)):
            restore(change)
        for change in later:
            rebind(change)


MOST_WRAPPERS = 4
"""The maximum number of decorators to look through to find a cached function."""


@contextmanager
def without_new_cache_entries(recorded: list[Node], own: "Iterable[CacheWrapper[Any]]") -> Iterator[None]:
    """Clear the caches in `own`, and those of packages, that gained entries in the block."""
    before = [(cache, cache.cache_info().misses) for cache in own]
    first = len(recorded)
    try:
        yield
    finally:
        for cache, misses in before:
            if cache.cache_info().misses > misses:
                cache.cache_clear()
        frames = (frame for node in recorded[first:] for frame in node.origin.location.frames)
        for code in {id(code): code for code, _ in frames}.values():  # hashing a code object costs more
            for cache in _caches_of(code) if is_installed_file(code.co_filename) else ():
                cache.cache_clear()


@functools.lru_cache(maxsize=10_000)
def _caches_of(code: CodeType) -> "tuple[CacheWrapper[Any], ...]":
    """Return the caches around a function of a module or class, through decorators."""
    owner: Any = _modules(len(sys.modules)).get(code.co_filename)
    for name in code.co_qualname.split("."):
        owner = vars(owner).get(name) if hasattr(owner, "__dict__") else None
    return tuple(_caches_within(getattr(owner, "__func__", owner), code, MOST_WRAPPERS))


def _caches_within(value: Any, code: CodeType, depth: int) -> "Iterator[CacheWrapper[Any]]":
    if isinstance(value, CacheWrapper):
        yield value
    elif isinstance(value, FunctionType) and value.__code__ is not code and depth:
        for _, cell in filled_cells(value):
            yield from _caches_within(cell.cell_contents, code, depth - 1)


@functools.lru_cache(maxsize=1)
def _modules(count: int) -> dict[str, Any]:
    """Return the imported modules by file, cached while their number is the same."""
    return {getattr(module, "__file__", None) or "": module for module in list(sys.modules.values())}
