"""What a function can read besides its arguments: globals, closures, attributes, and theirs in turn.

Invariant: only names that the code mentions are listed (globals by the function itself, attributes by any
function or by the object's class); installed packages are skipped, except for the attributes of their layers.
"""

import argparse
import functools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any
from weakref import ReferenceType

import torch

from aotlens.capture.autograd.graph_walk import requires_grad
from aotlens.capture.free_variables.mentions import (
    defaults_of,
    function_of,
    has_attributes,
    is_user_class,
    names_of,
    package_names_of,
    unread_names,
)
from aotlens.capture.free_variables.state import (
    Binding,
    CacheWrapper,
    Contents,
    HiddenState,
    Instance,
    ReachableState,
    hidden_state_of,
    process_generators,
)
from aotlens.capture.free_variables.stores import (
    CONTAINERS,
    attributes_of,
    filled_cells,
    has_slots,
    items_of,
    keyed_items,
    shallow_copy,
    value_at,
)
from aotlens.capture.inputs.module_tensors import names_bound_by_hooks
from aotlens.capture.provenance.frames import is_first_party_file

NAMESPACES = (SimpleNamespace, argparse.Namespace)
"""Standard library classes that hold the user's own attributes."""
NAMED = frozenset({"the global", "the closure variable", "the attribute", "the class attribute"})
"""Kinds of binding that only code which mentions the name can read."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""What calling a layer reads besides its own code."""
SEPARATE_ATTRIBUTES = frozenset({"_parameters", "_buffers", "_modules", *HOOKS})
"""A layer's attributes that are added separately, or are arguments of the graph."""


def reachable_state(function: Callable[..., Any], arguments: Sequence[Any] = ()) -> ReachableState:
    """Return everything that a function, module or partial can read by name, also through its arguments."""
    walk = _Walk(function)
    walk.enqueue(function, *arguments)
    if isinstance(function, torch.nn.Module):
        walk.hooks_of_all_layers()
    walk.run()
    return ReachableState(
        walk.bindings_by_use(),
        tuple(walk.contents.values()),
        tuple(walk.instances),
        tuple(walk.codes),
        tuple(walk.caches),
        (*process_generators(), *walk.hidden_states),
    )


@dataclass(frozen=True, slots=True)
class _Attributes:
    """The attributes of an object or class, of which the walk adds those that code mentions."""

    kind_text: str
    store: Any
    excluded: frozenset[str] = frozenset()
    own_names: frozenset[str] = frozenset()
    """The names that a package's code mentions: that of the object's class, and of a layer's hooks."""
    foreign: bool = False
    """Whether the class is a package's, which manages the attributes in `own_names` itself."""


class _Walk:
    """A walk that visits each object once."""

    def __init__(self, function: Any) -> None:
        layers = function.modules() if isinstance(function, torch.nn.Module) else ()
        self._arguments = {id(layer) for layer in layers}
        """Layers whose tensors are inputs of the graph."""
        self.bindings: dict[tuple[int, str], Binding] = {}
        self.contents: dict[int, Contents] = {}
        self.instances: list[Instance] = []
        self.codes: list[CodeType] = []
        self.caches: list[CacheWrapper[Any]] = []
        self.hidden_states: list[HiddenState] = []
        self._attributes: list[_Attributes] = []
        self._names: set[str] = set()
        """The names in the user's code so far."""
        self._package_names = {"training"}
        """The names in packages' hooks, and in packages' base classes of the user's classes."""
        self._package_names_of: Callable[[type], frozenset[str]] = functools.cache(package_names_of)
        self._waiting: list[Any] = []
        self._seen: set[Any] = set()

    def enqueue(self, *values: Any) -> None:
        """Schedule a visit to values that the function can reach."""
        for value in values:
            is_plain = value is None or isinstance(value, (int, float, str, torch.Tensor))
            if not is_plain and id(value) not in self._seen:
                self._seen.add(id(value))
                self._waiting.append(value)

    def run(self) -> None:
        """Visit everything; the names in code that is visited later may be attributes of earlier objects."""
        while self._waiting:
            while self._waiting:
                self._visit(self._waiting.pop())
            for attributes in self._attributes:
                self._mentioned_attributes(attributes)

    def bindings_by_use(self) -> tuple[Binding, ...]:
        """Return the bindings, those that the code only binds without their value's being read."""
        bindings = tuple(self.bindings.values())
        own = frozenset(binding.name for binding in bindings if _has_own_name(binding))
        unread = unread_names(self.codes, own - self._package_names)
        return tuple(
            replace(binding, is_read=False) if binding.name in unread and _has_own_name(binding) else binding
            for binding in bindings
        )

    def _visit(self, value: Any) -> None:
        match value:
            case torch.nn.Module():
                for layer in value.modules():
                    if not isinstance(layer, torch.jit.ScriptModule):  # its names are in C++
                        self._layer(layer)
            case FunctionType():
                self._function(value)
            case CacheWrapper():
                self.caches.append(value)
                self.enqueue(value.__wrapped__)
            case ModuleType():
                if _is_users(value):
                    self._attributes.append(_Attributes("the global", vars(value)))
            case type():
                self._class(value)
            case ContextVar():
                self._bind("the context variable", value.name, value, value_at(value, value.name))
            case _ if (parts := _parts(value)) is not None:
                self.enqueue(*parts)
            case _:
                self._object(value)

    def _function(self, function: FunctionType) -> None:
        self.enqueue(getattr(function, "__wrapped__", None))
        code = function.__code__
        if not is_first_party_file(code.co_filename):
            return
        names = names_of(code)
        self.codes.append(code)
        self._names |= names
        self._watch(vars(function), is_read=False)
        self._attributes.append(_Attributes("the attribute", vars(function)))
        defaults = defaults_of(function)
        for name, value in defaults.items():
            if isinstance(value, CONTAINERS):
                self._bind("the default", name, defaults, value)
            self.enqueue(value)
        self._globals(function.__globals__, names)
        for name, cell in filled_cells(function):
            self._bind("the closure variable", name, cell, cell.cell_contents)
            self.enqueue(cell.cell_contents)

    def _globals(self, namespace: dict[str, Any], names: frozenset[str]) -> None:
        """Add the globals that a function names, also those of the user's modules among them."""
        for name in sorted(names & namespace.keys()):
            value = namespace[name]
            self._bind("the global", name, namespace, value)
            if not isinstance(value, ModuleType):
                self.enqueue(value)
            elif _is_users(value) and (id(value), names) not in self._seen:
                self._seen.add((id(value), names))
                self._globals(vars(value), names)

    def _class(self, kind: type) -> None:
        for base in filter(is_user_class, kind.__mro__):
            self._attributes.append(_Attributes("the class attribute", base))
            self.enqueue(*map(function_of, vars(base).values()))
            self._package_names |= self._package_names_of(kind)

    def _object(self, value: Any) -> None:
        kind = type(value)
        if (state := hidden_state_of(value)) is not None:
            self.hidden_states.append(state)
        elif has_attributes(value) and not kind.__module__.startswith("torch."):
            foreign = not is_user_class(kind) and not isinstance(value, NAMESPACES)
            store: Any = value if has_slots(kind) and not foreign else vars(value)
            if not foreign:
                self._watch(store)
            own_names = self._package_names_of(kind)
            self._attributes.append(_Attributes("the attribute", store, own_names=own_names, foreign=foreign))
            self.enqueue(kind)

    def _layer(self, layer: torch.nn.Module) -> None:
        """Add a layer's attributes, submodules, tensors and hooks."""
        self._seen.add(id(layer))
        kind, store = type(layer), vars(layer)
        foreign = kind.__module__.startswith("torch.")
        own_names = self._package_names_of(kind) | {"training"} | self._hooks(store, "")
        excluded = SEPARATE_ATTRIBUTES | names_bound_by_hooks(layer)
        self._attributes.append(_Attributes("the attribute", store, excluded, own_names, foreign))
        self._watch(store, is_read=not foreign or any(store[hooks] for hooks in HOOKS))
        self._watch(layer._modules, is_read=bool(layer._modules))
        for name, inner in layer._modules.items():
            self._bind("the submodule", name, layer._modules, inner, foreign)
        for tensors in (layer._parameters, layer._buffers):
            self._watch(tensors, is_read=False)
            for name, tensor in tensors.items():
                if tensor is None or id(layer) not in self._arguments:
                    self._bind("the tensor", name, tensors, tensor, foreign)
        self.enqueue(kind)

    def hooks_of_all_layers(self) -> None:
        self._hooks(vars(torch.nn.modules.module), "_global")

    def _hooks(self, store: dict[str, Any], prefix: str) -> frozenset[str]:
        """Add what hooks read; return the names in the hooks of packages."""
        names: frozenset[str] = frozenset()
        for hooks in (prefix + name for name in HOOKS):
            self._bind("the hooks", hooks, store, store[hooks], foreign=True)
            for hook in store[hooks].values():
                self.enqueue(hook)
                code = getattr(hook, "__code__", None)
                if code is not None and not is_first_party_file(code.co_filename):
                    names |= names_of(code)
        self._package_names |= names
        return names

    def _mentioned_attributes(self, attributes: _Attributes) -> None:
        """Add the attributes that the code so far mentions."""
        values = attributes_of(attributes.store)
        for name in sorted((self._names | attributes.own_names) & values.keys() - attributes.excluded):
            foreign = attributes.foreign and name in attributes.own_names
            self._bind(attributes.kind_text, name, attributes.store, values[name], foreign)
            self.enqueue(values[name])

    def _watch(self, store: Any, is_read: bool = True) -> None:
        """Add an object whose attributes the function may bind, also under new names."""
        self.instances.append(Instance(store, dict(attributes_of(store)), is_read))

    def _bind(self, what: str, name: str, store: Any, value: Any, foreign: bool = False) -> None:
        if isinstance(value, ModuleType) or (id(store), name) in self.bindings:
            return
        self.bindings[id(store), name] = Binding(what, name, store, value, foreign, requires_grad(value))
        self._contents((name,), value, store, foreign)

    def _contents(self, keys: tuple[Any, ...], value: Any, owner: Any, foreign: bool) -> None:
        """Add a container, and the containers within it."""
        if isinstance(value, CONTAINERS) and id(value) not in self.contents:
            self.contents[id(value)] = Contents(keys, value, shallow_copy(value), owner, foreign)
            for key, item in keyed_items(value):
                self._contents((*keys, key), item, None, foreign)


def _parts(value: Any) -> Iterable[Any] | None:
    """Return what a value without names leads to; None for any other value."""
    match value:
        case list() | dict() | set() | deque() | tuple():
            return items_of(value)
        case MethodType():
            return value.__func__, value.__self__
        case partial():
            return value.func, *value.args, *value.keywords.values()
        case ReferenceType():
            return (value(),)
        case BuiltinMethodType():
            return (value.__self__,)
    return None


def _is_users(module: ModuleType) -> bool:
    return is_first_party_file(getattr(module, "__file__", None) or "")


def _has_own_name(binding: Binding) -> bool:
    """Return True if only the user's code, or a base class of it, reads the binding, and by name."""
    return binding.kind_text in NAMED and not binding.foreign
