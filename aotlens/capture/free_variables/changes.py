"""Python state that a recording changed, and how to restore it: bindings, containers, `lru_cache` entries."""

import functools
import gc
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from aotlens.capture.free_variables.containers import CONTAINERS, shallow_copy
from aotlens.capture.free_variables.guards import PLAIN, is_same, same_items
from aotlens.capture.free_variables.namespaces import MISSING, attributes_of, filled_cells
from aotlens.capture.free_variables.state import (
    Binding,
    CacheWrapper,
    Contents,
    Instance,
    ReachableState,
)
from aotlens.capture.provenance.frames import is_installed_file
from aotlens.ir.program import Node
from aotlens.torch_api.fake.tensors import FakeTensor


@dataclass(frozen=True, slots=True)
class Change:
    """A name that is bound to another value, or a container with other items."""

    source: Binding | Contents
    """Before the change."""
    now: Any
    """The new value; for a container a copy of its new items."""


def undone_changes(state: ReachableState) -> list[Change]:
    """Restore the state, and return what had changed."""
    changes = list(changes_in(state))
    for change in changes:
        change.source.restore()
    return changes


def changes_in(state: ReachableState) -> Iterator[Change]:
    """Yield the changes; packages manage their own objects, but must not store fake tensors."""
    named = {(id(binding.store), binding.name) for binding in state.bindings}
    unnamed = (change for instance in state.instances for change in _changed_attributes(instance, named))
    for change in (*changed_contents(state.contents), *_rebound_names(state.bindings), *unnamed):
        if not change.source.foreign or contains_fake(change.now):
            yield change


def changed_contents(contents: Iterable[Contents]) -> Iterator[Change]:
    """Yield the containers that have other items."""
    for item in contents:
        if not same_items(item.store, item.before):
            yield Change(item, shallow_copy(item.store))


def _rebound_names(bindings: Iterable[Binding]) -> Iterator[Change]:
    for binding in bindings:
        now = binding.now()
        if now is not binding.value and (isinstance(now, CONTAINERS) or not is_same(now, binding.value)):
            yield Change(binding, now)


def _changed_attributes(instance: Instance, named: set[tuple[int, Any]]) -> Iterator[Change]:
    """Yield changes of attributes that no code names, or that are new."""
    names, before = attributes_of(instance.store), instance.before
    for name in dict.fromkeys((*before, *names)):
        now, then = names.get(name, MISSING), before.get(name, MISSING)
        if now is not then and (id(instance.store), name) not in named:
            yield Change(Binding("the attribute", name, instance.store, then), now)


def contains_fake(value: Any, known: Container[int] = ()) -> bool:
    """Return True if a value contains a fake tensor or an autograd node, other than the known ones."""
    waiting, seen = [value], set[int]()
    while waiting:
        part = waiting.pop()
        if type(part) is FakeTensor or isinstance(part, torch.autograd.graph.Node):
            if id(part) not in known:
                return True
        elif id(part) not in seen and not isinstance(
            part, (*PLAIN, type, torch.Tensor, ModuleType, CodeType)
        ):
            seen.add(id(part))
            waiting.extend(_parts(part))
    return False


def _parts(value: Any) -> Iterable[Any]:
    """Return what a value holds: items, attributes, closure variables, the remaining items of an iterator."""
    if isinstance(value, FunctionType):
        return value.__closure__ or ()
    is_torchs = type(value).__module__.startswith("torch.") and not isinstance(value, torch.nn.Module)
    return () if is_torchs else gc.get_referents(value)


@contextmanager
def initial_state(state: ReachableState) -> Iterator[None]:
    """Restore the state before the recording in the block, and the current state afterwards."""
    later = undone_changes(state)
    try:
        yield
    finally:
        undone_changes(state)
        for change in later:
            change.source.set(change.now)


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
