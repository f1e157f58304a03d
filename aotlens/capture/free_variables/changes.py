"""Python state compared with what it was: the changes of a recording, and the guard of a compiled function.

Invariant: after a recording, bindings, containers and `lru_cache` entries are as before.  A compiled function
is reused only while every attribute, global and closure variable that it may read has the value that it was
compiled with.
"""

import functools
import gc
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from aotlens.capture.free_variables.state import (
    Binding,
    CacheWrapper,
    Contents,
    Instance,
    ReachableState,
    Rebinding,
)
from aotlens.capture.free_variables.stores import (
    BASES,
    CONTAINERS,
    MISSING,
    UNBOUND_ERRORS,
    attributes_of,
    base_of,
    filled_cells,
    read_expression,
    shallow_copy,
)
from aotlens.capture.inputs.constant_arguments import is_same_number
from aotlens.capture.provenance.frames import is_installed_file
from aotlens.ir.program import Node
from aotlens.torch_api.fake.tensors import FakeTensor

BUILTIN_TYPES = (*CONTAINERS, OrderedDict, defaultdict)
"""Containers whose truth value means that they have items; a user's class may define it otherwise."""
PLAIN = (bool, int, float, complex, str, bytes)
"""Types whose equal values are interchangeable for a compiled function."""


class _TensorKind:
    """What a call may know of a tensor that it replaces without reading it; a guard keeps this instead."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._facts = _facts(tensor)

    def fits(self, value: Any) -> bool:
        """Return True for a tensor of the same kind."""
        return isinstance(value, torch.Tensor) and _facts(value) == self._facts


def _facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    flags = tensor.requires_grad, tensor.is_leaf
    return type(tensor), tensor.shape, strides, tensor.dtype, tensor.device, tensor.layout, flags


def _same_items(now: Any, then: Any) -> bool:
    """Return True if two containers of one type have the same items in the same order."""
    base = base_of(now)
    if base.__len__(now) != len(then):
        return False
    if base is dict:
        return all(key in then and _is_same(value, then[key]) for key, value in dict.items(now))
    if base is set:
        return set.__eq__(now, then)
    return all(map(_is_same, base.__iter__(now), then))


def _is_same(now: Any, then: Any) -> bool:
    """Return True for the same object, an equal value or container, or a tensor of the kind."""
    if now is then:
        return True
    if type(now) is not type(then):
        return isinstance(then, _TensorKind) and then.fits(now)
    if isinstance(now, BASES):
        return _same_items(now, then)
    return isinstance(now, PLAIN) and is_same_number(now, then)


def free_variable_check(before: ReachableState, replaced: Sequence[Rebinding]) -> Callable[[], bool]:
    """Return a function that checks whether all free variables are unchanged.

    Of a tensor that each call replaces, a later call requires only the kind. The fast path is one expression
    of identity comparisons, some tens of nanoseconds each; values are compared only if one of them fails.
    """
    kinds = {
        (id(rebinding.store), rebinding.key): _TensorKind(rebinding.before)
        for rebinding in replaced
        if isinstance(rebinding.before, torch.Tensor)
    }
    new_names = {id(rebinding.store) for rebinding in replaced if rebinding.before is MISSING}
    bindings, contents = [binding for binding in before.bindings if binding.is_read], list(before.contents)
    if kinds:
        bindings = [
            replace(binding, value=kinds.get((id(binding.store), binding.name), binding.value))
            for binding in bindings
        ]
        contents = [replace(item, before=_with_kinds(item, kinds)) for item in contents]
    instances = [item for item in before.instances if item.is_read or id(item.store) in new_names]
    if not (bindings or contents or instances):
        return lambda: True
    same_objects = _identity_check(bindings, contents, instances)

    def fits() -> bool:
        try:
            if same_objects():
                return True
        except UNBOUND_ERRORS:
            return False
        return (
            # a new attribute may hide one of the class, or make `hasattr` true
            all(len(attributes_of(instance.store)) == len(instance.before) for instance in instances)
            and all(_same_items(item.store, item.before) for item in contents)
            and all(map(_is_unchanged, bindings))
        )

    return fits


def _with_kinds(contents: Contents, kinds: Mapping[tuple[int, Any], _TensorKind]) -> Any:
    """Return a container's items, with their kinds where each call replaces them."""
    own = {key: kind for (store, key), kind in kinds.items() if store == id(contents.store)}
    if isinstance(contents.before, dict):
        return contents.before | own
    return [own.get(index, item) for index, item in enumerate(contents.before)] if own else contents.before


def _identity_check(
    bindings: Sequence[Binding], contents: Sequence[Contents], instances: Sequence[Instance]
) -> Callable[[], bool]:
    """Return a function that is True if all names have the same objects; it raises if one is not bound."""
    names: dict[str, Any] = {"_same_items": _same_items, "attributes_of": attributes_of}
    conditions: list[str] = []
    for index, binding in enumerate(bindings):
        names[f"s{index}"], names[f"v{index}"] = binding.store, binding.value
        read = read_expression(f"s{index}", binding.store, repr(binding.name))
        is_kind = isinstance(binding.value, _TensorKind)
        conditions.append(f"v{index}.fits({read})" if is_kind else f"{read} is v{index}")
        if isinstance(binding.value, torch.Tensor):
            conditions.append(f"v{index}.requires_grad is {binding.requires_grad}")
    for index, item in enumerate(contents):
        names[f"c{index}"], names[f"b{index}"] = item.store, item.before
        is_empty = not item.before and type(item.store) in BUILTIN_TYPES
        conditions.append(f"not c{index}" if is_empty else f"_same_items(c{index}, b{index})")
    for index, instance in enumerate(instances):
        names[f"i{index}"] = instance.store
        names_now = f"i{index}" if isinstance(instance.store, dict) else f"attributes_of(i{index})"
        conditions.append(f"len({names_now}) == {len(instance.before)}")
    check: Callable[[], bool] = eval(f"lambda: {' and '.join(conditions)}", names)  # noqa: S307 (our own text)
    return check


def _is_unchanged(binding: Binding) -> bool:
    """Return True if a name is bound to the same value, or to an equal one."""
    now = binding.now()
    if isinstance(now, torch.Tensor) and not isinstance(binding.value, _TensorKind):
        return now is binding.value and now.requires_grad is binding.requires_grad
    return _is_same(now, binding.value)


@dataclass(frozen=True, slots=True)
class Change:
    """A name that is bound to another value, or a container with other items."""

    source: Binding | Contents
    """Before the change."""
    now: Any
    """The new value; for a container a copy of its new items."""


def undone_changes(state: ReachableState, arguments: Container[int] = ()) -> list[Change]:
    """Restore the state, and return what had changed.

    A package's object may still hold `arguments`, the recording's own tensors: a recurrent layer rebuilds its
    list of weights from the parameters, which the call swaps.
    """
    changes = list(changes_in(state))
    for change in changes:
        change.source.restore()
    return [change for change in changes if not change.source.foreign or contains_fake(change.now, arguments)]


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
        if not _same_items(item.store, item.before):
            yield Change(item, shallow_copy(item.store))


def _rebound_names(bindings: Iterable[Binding]) -> Iterator[Change]:
    for binding in bindings:
        now = binding.now()
        if now is not binding.value and (isinstance(now, CONTAINERS) or not _is_same(now, binding.value)):
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
