"""Namespaces (modules, objects, closures, classes, lists, slots) as mappings and as module text.

Includes the attributes that torch's own hooks rebind at each call of a layer, such as a normalised weight.
"""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any

import torch

MISSING = object()
"""The value of a name that is not bound."""


def namespace(store: Any) -> MutableMapping[Any, Any]:
    """Return a store's names as a mutable mapping."""
    if isinstance(store, CellType):
        return Cell(store)
    if isinstance(store, type):
        return ClassNames(store)
    if isinstance(store, list):
        return Positions(store)
    return store


def value_at(store: Any, key: Any) -> Any:
    """Return the current value of a name; MISSING if it is not bound."""
    return namespace(store).get(key, MISSING)


def read_expression(box: str, store: Any, key: str) -> str:
    """Return the expression that reads a name; it raises LookupError or ValueError if the name is not bound.

    `box` is the expression for the store, `key` the one for the key.
    """
    return f"{box}.cell_contents" if isinstance(store, CellType) else f"{_names_in(box, store)}[{key}]"


def bind_statement(box: str, store: Any, key: str, value: str) -> str:
    """Return the statement that binds a name."""
    if isinstance(store, CellType):
        return f"{box}.cell_contents = {value}"
    return f"setattr({box}, {key}, {value})" if isinstance(store, type) else f"{box}[{key}] = {value}"


def _names_in(box: str, store: Any) -> str:
    return f"{box}.__dict__" if isinstance(store, type) else box


class Cell(MutableMapping[Any, Any]):
    """A closure variable as a mapping that ignores the key."""

    def __init__(self, cell: CellType) -> None:
        self.cell = cell

    def __getitem__(self, key: Any) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:  # bound later
            raise KeyError(key) from None

    def __setitem__(self, key: Any, value: Any) -> None:
        self.cell.cell_contents = value

    def __delitem__(self, key: Any) -> None:
        del self.cell.cell_contents

    def __iter__(self) -> Iterator[Any]:
        return iter([None][: len(self)])

    def __len__(self) -> int:
        return int(self.get(None, MISSING) is not MISSING)


class ClassNames(MutableMapping[str, Any]):
    """A class's own attributes, without those of its bases."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __getitem__(self, name: str) -> Any:
        return vars(self.kind)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self.kind, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self.kind, name)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self.kind))

    def __len__(self) -> int:
        return len(vars(self.kind))


class Positions(MutableMapping[int, Any]):
    """The items of a list by position."""

    def __init__(self, items: list[Any]) -> None:
        self.items_of = items

    def __getitem__(self, position: int) -> Any:
        if position not in self:
            raise KeyError(position)
        return self.items_of[position]

    def __setitem__(self, position: int, value: Any) -> None:
        self.items_of[position] = value

    def __delitem__(self, position: int) -> None:
        del self.items_of[position]

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self.items_of)

    def __contains__(self, position: object) -> bool:
        return isinstance(position, int) and 0 <= position < len(self)


def filled_cells(function: FunctionType) -> Iterator[tuple[str, CellType]]:
    """Yield the bound variables of a function's closure, by name."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if len(Cell(cell)):
            yield name, cell


def has_slots(kind: type) -> bool:
    """Return True if objects of a class have attributes outside `__dict__`."""
    return any(
        isinstance(member, MemberDescriptorType) for base in kind.__mro__ for member in vars(base).values()
    )


class SlotAttributes(MutableMapping[str, Any]):
    """The attributes of an object with `__slots__`, including those of its `__dict__`."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._members = {
            name: member
            for base in reversed(type(owner).__mro__)
            for name, member in vars(base).items()
            if isinstance(member, MemberDescriptorType)
        }
        self._others: dict[str, Any] = getattr(owner, "__dict__", {})

    def __getitem__(self, name: str) -> Any:
        if name not in self._members:
            return self._others[name]
        try:
            return self._members[name].__get__(self.owner)
        except AttributeError:  # not bound yet
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self._members:
            self._members[name].__set__(self.owner, value)
        else:
            self._others[name] = value

    def __delitem__(self, name: str) -> None:
        if name in self._members:
            self._members[name].__delete__(self.owner)
        else:
            del self._others[name]

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._members if name in self)
        yield from self._others

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        if name not in self._members:
            return name in self._others
        try:
            self._members[str(name)].__get__(self.owner)
        except AttributeError:
            return False
        return True


def names_bound_by_hooks(layer: torch.nn.Module) -> frozenset[str]:
    """Return attributes that a `torch.nn.utils` hook rebinds before the layer reads them."""
    hooks = layer._forward_pre_hooks.values()
    names = (_name_of(hook) for hook in hooks if type(hook).__module__.startswith("torch.nn.utils."))
    return frozenset(name for name in names if name in vars(layer))


def _name_of(hook: Any) -> Any:
    return getattr(hook, "name", None) or getattr(hook, "_tensor_name", None)


@contextmanager
def bound_by_hooks(function: Any) -> Iterator[list[tuple[str, Any]]]:
    """Restore what hooks bind in the block; yield a list that receives the new tensors by qualified name."""
    layers = function.named_modules() if isinstance(function, torch.nn.Module) else ()
    attributes = [
        (f"{fqn}.{name}" if fqn else name, vars(layer), name, vars(layer)[name])
        for fqn, layer in layers
        if layer._forward_pre_hooks
        for name in sorted(names_bound_by_hooks(layer))
    ]
    rebound: list[tuple[str, Any]] = []
    try:
        yield rebound
        rebound += [
            (fqn, store[name]) for fqn, store, name, before in attributes if store[name] is not before
        ]
    finally:
        for _, store, name, before in attributes:
            store[name] = before
