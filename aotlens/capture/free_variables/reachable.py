"""What a function can read besides its arguments: globals, closures, attributes, and theirs in turn.

Invariant: only names that the code mentions are listed (in its bytecode, in what it calls, in the methods of
the classes it uses); installed packages are skipped, except for the attributes of their layers.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any
from weakref import ReferenceType

import torch

from aotlens.capture.free_variables.containers import CONTAINERS, items_of, keyed_items, shallow_copy
from aotlens.capture.free_variables.hidden_state import HiddenState, hidden_state_of, process_generators
from aotlens.capture.free_variables.members import (
    STORE_ATTR,
    binds_attributes,
    defaults_of,
    function_of,
    has_attributes,
    is_user_class,
    names_of,
)
from aotlens.capture.free_variables.namespaces import attributes_of, filled_cells, has_slots, value_at
from aotlens.capture.free_variables.state import (
    Binding,
    CacheWrapper,
    Contents,
    Instance,
    ReachableState,
)
from aotlens.capture.free_variables.user_names import unread_names
from aotlens.capture.inputs.module_tensors import names_bound_by_hooks
from aotlens.capture.provenance.frames import is_first_party_file

NAMESPACES = (SimpleNamespace, argparse.Namespace)
"""Standard library classes that hold the user's own attributes."""
NAMED = frozenset({"the global", "the closure variable", "the attribute", "the class attribute"})
"""Kinds of binding that only code which mentions the name can read."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""What calling a layer reads besides its own code."""


def reachable_state(function: Callable[..., Any], arguments: Sequence[Any] = ()) -> ReachableState:
    """Return everything that a function, module or partial can read by name, also through its arguments."""
    walk = _Walk(function)
    walk.enqueue(function, frozenset())
    if isinstance(function, torch.nn.Module):
        walk.hooks_of_all_layers()
    names = names_of(getattr(getattr(function, "forward", function), "__code__", None))
    for argument in arguments:
        walk.enqueue(argument, names)
    walk.run()
    return ReachableState(
        walk.bindings_by_use(),
        tuple(walk.contents.values()),
        tuple(walk.instances),
        tuple(walk.codes),
        tuple(walk.caches),
        (*process_generators(), *walk.hidden_states),
    )


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
        self._functions: list[tuple[FunctionType, frozenset[str]]] = []
        self._layers: dict[int, torch.nn.Module] = {}
        self._waiting: list[tuple[Any, frozenset[str]]] = []
        self._seen: set[int] = set()
        self._class_names: dict[type, frozenset[str]] = {}
        self._hook_names: frozenset[str] = frozenset()
        self._classes: dict[int, set[str]] = {}
        """The names for which each user class was visited; another function may use other names."""

    def enqueue(self, value: Any, names: frozenset[str]) -> None:
        """Schedule a visit to a value that code with these names can reach."""
        if value is None or isinstance(value, (int, float, str, torch.Tensor)):
            return
        if id(value) in self._seen:
            known = self._classes.get(id(value))
            if known is None or names <= known:
                return
        self._seen.add(id(value))
        if isinstance(value, type) and is_user_class(value):
            self._classes.setdefault(id(value), set()).update(names)
        self._waiting.append((value, names))

    def run(self) -> None:
        while self._waiting:
            self._visit(*self._waiting.pop())
            if not self._waiting:
                self._attributes_given_to_layers()
        if any(STORE_ATTR in code.co_code[::2] for code in self.codes):
            self._attributes_of_functions()
        if any(map(binds_attributes, self.codes)):
            self._layers_of_torch()

    def bindings_by_use(self) -> tuple[Binding, ...]:
        """Return the bindings, those that the code only binds without their value's being read."""
        bindings = tuple(self.bindings.values())
        own = frozenset(binding.name for binding in bindings if _has_own_name(binding))
        unread = unread_names(self.codes, own - self._names_in_packages())
        return tuple(
            replace(binding, is_read=False) if binding.name in unread and _has_own_name(binding) else binding
            for binding in bindings
        )

    def _names_in_packages(self) -> frozenset[str]:
        """Return the names in packages' hooks, and in packages' base classes of the user's classes."""
        kinds = {base for kind in self._class_names for base in kind.__mro__}
        members = (
            function_of(member)
            for kind in kinds - {object, torch.nn.Module}
            if not is_user_class(kind)
            for member in vars(kind).values()
        )
        codes = (names_of(getattr(member, "__code__", None)) for member in members)
        return frozenset({"training"}).union(self._hook_names, *codes)

    def _visit(self, value: Any, names: frozenset[str]) -> None:
        if isinstance(value, torch.nn.Module):
            for owner in value.modules():
                if not isinstance(owner, torch.jit.ScriptModule):  # its names are in C++
                    self._layer(owner)
        elif isinstance(value, (*CONTAINERS, tuple)):
            for item in items_of(value):
                self.enqueue(item, names)
        elif isinstance(value, ModuleType):
            if is_first_party_file(getattr(value, "__file__", None) or ""):
                self._names_in("the global", vars(value), names)
        elif isinstance(value, (FunctionType, MethodType, partial)):
            self._callable(value, names)
        elif isinstance(value, CacheWrapper):
            self.caches.append(value)
            self.enqueue(value.__wrapped__, names)
        elif isinstance(value, type):
            self._class(value, names)
        else:
            self._object(value, names)

    def _object(self, value: Any, names: frozenset[str]) -> None:
        if isinstance(value, ReferenceType):
            self.enqueue(value(), names)
        elif isinstance(value, BuiltinMethodType):
            self.enqueue(value.__self__, names)
        elif isinstance(value, ContextVar):
            self._bind("the context variable", value.name, value, value_at(value, value.name))
        elif (state := hidden_state_of(value)) is not None:
            self.hidden_states.append(state)
        elif has_attributes(value) and not type(value).__module__.startswith("torch."):
            self._instance(value, names | self._names_of(type(value)))

    def _callable(self, value: Any, names: frozenset[str]) -> None:
        if isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self.enqueue(value.__func__, names)
            self.enqueue(value.__self__, names | names_of(getattr(value.__func__, "__code__", None)))
        else:
            for part in (value.func, *value.args, *value.keywords.values()):
                self.enqueue(part, names)

    def _function(self, function: FunctionType) -> None:
        self.enqueue(getattr(function, "__wrapped__", None), frozenset())
        code = function.__code__
        if not is_first_party_file(code.co_filename):
            return
        self.codes.append(code)
        names = names_of(code)
        self._functions.append((function, names))
        self._defaults(function, names)
        self._names_in("the global", function.__globals__, names)
        for name, cell in filled_cells(function):
            self._bind("the closure variable", name, cell, cell.cell_contents)
            self.enqueue(cell.cell_contents, names)

    def _attributes_of_functions(self) -> None:
        """Add attributes that code binds on functions, such as `f.calls = 0`."""
        for function, names in self._functions:
            store = vars(function)
            self._attributes(store)
            self._names_in("the attribute", store, names)

    def _attributes_given_to_layers(self) -> None:
        """Add a layer's attributes that only code outside its class mentions."""
        names = frozenset().union(*(named for _, named in self._functions)) - SEPARATE_ATTRIBUTES
        for layer in self._layers.values():
            store = vars(layer)
            for name in sorted((names & store.keys()) - self._names_of(type(layer))):
                if (id(store), name) not in self.bindings and name not in names_bound_by_hooks(layer):
                    self._bind("the attribute", name, store, store[name])
                    self.enqueue(store[name], names)

    def _layers_of_torch(self) -> None:
        """Add layers to which the user's code may add attributes or tensors."""
        known = {id(instance.store) for instance in self.instances}
        for layer in self._layers.values():
            for store in (vars(layer), layer._parameters, layer._buffers):
                if id(store) not in known and isinstance(store, dict):
                    read = store is vars(layer)
                    self._attributes(store, is_read=read)

    def _defaults(self, function: FunctionType, names: frozenset[str]) -> None:
        """Add the function's own defaults."""
        defaults = defaults_of(function)
        for name, value in defaults.items():
            if isinstance(value, CONTAINERS):
                self._bind("the default", name, defaults, value)
            self.enqueue(value, names)

    def _instance(self, value: Any, names: frozenset[str]) -> None:
        foreign = not is_user_class(type(value)) and not isinstance(value, NAMESPACES)
        store: Any = value if has_slots(type(value)) and not foreign else vars(value)
        if not foreign:
            self._attributes(store)
        self._names_in("the attribute", store, names, foreign)
        self._class(type(value), names)

    def _attributes(self, store: Any, is_read: bool = True) -> None:
        self.instances.append(Instance(store, dict(attributes_of(store)), is_read))

    def _layer(self, layer: torch.nn.Module) -> None:
        """Add a layer's attributes, submodules, tensors and hooks."""
        self._seen.add(id(layer))
        self._layers[id(layer)] = layer
        kind, store = type(layer), vars(layer)
        foreign = kind.__module__.startswith("torch.")
        names = self._names_of(kind) | {"training"}
        for name in sorted(names & store.keys() - SEPARATE_ATTRIBUTES - names_bound_by_hooks(layer)):
            self._bind("the attribute", name, store, store[name], foreign)
            if not foreign:
                self.enqueue(store[name], names)
        self._attributes(layer._modules, is_read=bool(layer._modules))
        for name, inner in layer._modules.items():
            self._bind("the submodule", name, layer._modules, inner, foreign)
        for tensors in (layer._parameters, layer._buffers):
            if not foreign:
                self._attributes(tensors, is_read=False)
            for name, tensor in tensors.items():
                if tensor is None or id(layer) not in self._arguments:
                    self._bind("the tensor", name, tensors, tensor, foreign)
        for hooks in HOOKS:
            self._bind("the hooks", hooks, store, store[hooks], foreign=True)
            self._hooks(store, store[hooks].values())
        if not foreign or any(store[hooks] for hooks in HOOKS):
            self._attributes(store)
        if not foreign:
            self._class(kind, names)

    def hooks_of_all_layers(self) -> None:
        store = vars(torch.nn.modules.module)
        for hooks in HOOKS:
            self._bind("the hooks", f"_global{hooks}", store, store[f"_global{hooks}"], foreign=True)
            for hook in store[f"_global{hooks}"].values():
                self.enqueue(hook, frozenset())

    def _hooks(self, store: dict[str, Any], hooks: Iterable[Any]) -> None:
        """Add what hooks read and store, including on the layer itself."""
        for hook in hooks:
            self.enqueue(hook, frozenset())
            code = getattr(hook, "__code__", None)
            names = names_of(code)
            if code is not None and not is_first_party_file(code.co_filename):
                self._hook_names |= names
            self._names_in("the attribute", store, names - SEPARATE_ATTRIBUTES)

    def _class(self, kind: type, names: frozenset[str]) -> None:
        for base in kind.__mro__:
            if not is_user_class(base):
                continue
            self._names_in("the class attribute", base, names)
            for member in vars(base).values():
                self.enqueue(function_of(member), names)

    def _names_in(self, what: str, owner: Any, names: frozenset[str], foreign: bool = False) -> None:
        store = attributes_of(owner)
        for name in sorted(names & store.keys()):
            value = store[name]
            self._bind(what, name, owner, value, foreign)
            self.enqueue(value, names)

    def _bind(self, what: str, name: str, store: Any, value: Any, foreign: bool = False) -> None:
        if isinstance(value, ModuleType) or (id(store), name) in self.bindings:
            return
        grad = isinstance(value, torch.Tensor) and value.requires_grad
        self.bindings[id(store), name] = Binding(what, name, store, value, foreign, grad)
        self._contents((name,), value, store, foreign)

    def _contents(self, keys: tuple[Any, ...], value: Any, owner: Any, foreign: bool) -> None:
        """Add a container, and the containers within it."""
        if isinstance(value, CONTAINERS) and id(value) not in self.contents:
            self.contents[id(value)] = Contents(keys, value, shallow_copy(value), owner, foreign)
            for key, item in keyed_items(value):
                self._contents((*keys, key), item, None, foreign)

    def _names_of(self, kind: type) -> frozenset[str]:
        """Return the names in the code of a class's methods, without those of `object` and `nn.Module`."""
        known = self._class_names.get(kind)
        if known is None:
            names: set[str] = set()
            for base in kind.__mro__:
                if base not in (object, torch.nn.Module):
                    for member in vars(base).values():
                        names |= names_of(getattr(function_of(member), "__code__", None))
            known = self._class_names[kind] = frozenset(names)
        return known


def _has_own_name(binding: Binding) -> bool:
    """Return True if only the user's code, or a base class of it, reads the binding, and by name."""
    return binding.kind_text in NAMED and not binding.foreign


SEPARATE_ATTRIBUTES = frozenset({"_parameters", "_buffers", "_modules", *HOOKS})
"""A layer's attributes that are added separately, or are arguments of the graph."""
