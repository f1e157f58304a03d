"""The stores that bind names and items: dictionaries, lists, closure cells, classes, objects with slots.

Invariant: a store is read and changed without running the user's code.
"""

from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any

MISSING = object()
"""The value of a name that is not bound."""
UNBOUND_ERRORS = (LookupError, ValueError, AttributeError)
"""What reading such a name raises, by its store."""


def value_at(store: Any, key: Any) -> Any:
    """Return the current value of a name or item; MISSING if it is not bound."""
    try:
        if isinstance(store, CellType):
            return store.cell_contents
        if isinstance(store, ContextVar):
            return store.get()
        return store[key] if isinstance(store, list) else attributes_of(store)[key]
    except UNBOUND_ERRORS:
        return MISSING


def attributes_of(store: Any) -> Mapping[Any, Any]:
    """Return the names of a dictionary, of a class without its bases, or of an object with slots."""
    if isinstance(store, dict):
        return store
    if isinstance(store, type):
        return vars(store)
    slots = {
        name: getattr(store, name)
        for base in reversed(type(store).__mro__)
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType) and hasattr(store, name)
    }
    return slots | getattr(store, "__dict__", {})


def bind(store: Any, key: Any, value: Any) -> None:
    """Bind a name or item to a value; unbind it if the value is MISSING."""
    if isinstance(store, CellType):
        if value is MISSING:
            del store.cell_contents
        else:
            store.cell_contents = value
    elif isinstance(store, (dict, list)):
        if value is MISSING:
            del store[key]
        else:
            store[key] = value
    elif isinstance(store, ContextVar):
        store.set(None if value is MISSING else value)  # it cannot be unset
    elif value is MISSING:
        delattr(store, key)
    elif isinstance(store, type):
        setattr(store, key, value)
    else:
        object.__setattr__(store, key, value)


def read_expression(box: str, store: Any, key: str) -> str:
    """Return the expression that reads a name; it raises an error of UNBOUND_ERRORS if the name is not bound.

    `box` is the expression for the store, `key` the one for the key.
    """
    if isinstance(store, CellType):
        return f"{box}.cell_contents"
    if isinstance(store, ContextVar):
        return f"{box}.get()"
    if isinstance(store, (dict, list)):
        return f"{box}[{key}]"
    return f"{box}.__dict__[{key}]" if isinstance(store, type) else f"getattr({box}, {key})"


def bind_statement(box: str, store: Any, key: str, value: str) -> str:
    """Return the statement that binds a name, or an item of a container among the arguments (no store)."""
    if isinstance(store, CellType):
        return f"{box}.cell_contents = {value}"
    if isinstance(store, ContextVar):
        return f"{box}.set({value})"
    is_container = store is None or isinstance(store, (dict, list))
    return f"{box}[{key}] = {value}" if is_container else f"setattr({box}, {key}, {value})"


def filled_cells(function: FunctionType) -> Iterator[tuple[str, CellType]]:
    """Yield the bound variables of a function's closure, by name."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if value_at(cell, name) is not MISSING:
            yield name, cell


def has_slots(kind: type) -> bool:
    """Return True if objects of a class have attributes outside `__dict__`."""
    return any(
        isinstance(member, MemberDescriptorType) for base in kind.__mro__ for member in vars(base).values()
    )
