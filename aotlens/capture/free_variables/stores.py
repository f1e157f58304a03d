"""The stores that bind names and items: dictionaries, lists, closure cells, classes, objects with slots.

Invariant: a store is read, copied, filled and bound without running the user's code, also not the methods of
a class derived from a container.  Of arguments and results, the paths to leaves and containers.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any

from aotlens.torch_api.operators import pytree

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


Path = tuple[Any, ...]

CONTAINERS = (list, dict, set, deque)
BASES = (*CONTAINERS, tuple)
MAX_ITEMS = 64
"""Longer containers are compared, but their items are not inspected."""


def base_of(container: Any) -> Any:
    """Return the builtin container type that it has or derives from."""
    kind = type(container)
    return kind if kind in BASES else next(base for base in BASES if isinstance(container, base))


def shallow_copy(container: Any) -> Any:
    """Return a plain shallow copy."""
    base = base_of(container)
    return dict(dict.items(container)) if base is dict else base.copy(container)


def items_of(container: Any) -> Iterator[Any]:
    """Yield the items of a container, unless there are many."""
    base = base_of(container)
    if base.__len__(container) <= MAX_ITEMS:
        yield from dict.values(container) if base is dict else base.__iter__(container)


def keyed_items(container: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the items of a list or dict, each with its key; of other containers no item can be replaced."""
    if type(container) in (list, dict) and len(container) <= MAX_ITEMS:
        yield from container.items() if type(container) is dict else enumerate(container)


def set_items(container: Any, content: Any) -> None:
    """Replace a container's items by those of a shallow copy."""
    base: Any = OrderedDict if isinstance(container, OrderedDict) else base_of(container)
    base.clear(container)
    if isinstance(container, dict):
        for key, value in content.items():
            base.__setitem__(container, key, value)
    else:
        (base.update if base is set else base.extend)(container, content)


def flatten_with_path(tree: Any) -> tuple[list[tuple[Path, Any]], Any]:
    """Flatten a tree with paths; unlike torch's function it accepts every registered class."""
    leaves, spec = pytree.tree_flatten(tree)
    return list(zip(_paths((), tree, spec), leaves, strict=True)), spec


def _paths(path: Path, tree: Any, spec: Any) -> Iterator[Path]:
    """Yield the path of each leaf: names where the class has any, else positions."""
    if spec.is_leaf():
        yield path
        return
    rule = pytree.SUPPORTED_NODES[spec.type]
    named = rule.flatten_with_keys_fn
    if named is not None:
        pairs = list(named(tree)[0])
    else:
        parts, context = rule.flatten_fn(tree)
        pairs = list(zip(_keys(context, len(parts)), parts, strict=True))
    for (key, part), inner in zip(pairs, spec.children(), strict=True):
        yield from _paths((*path, key), part, inner)


def _keys(context: Any, count: int) -> list[Any]:
    names = context if isinstance(context, (list, tuple)) and len(context) == count else ()
    if names and all(isinstance(name, str) for name in names):
        return [pytree.MappingKey(name) for name in names]
    return [pytree.SequenceKey(index) for index in range(count)]


def containers_in(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the lists and dicts within a value, each with its path."""
    if isinstance(value, dict):
        pairs: Any = ((pytree.MappingKey(key), item) for key, item in value.items())
    elif type(value) in (list, tuple):
        pairs = ((pytree.SequenceKey(index), item) for index, item in enumerate(value))
    else:
        return
    for key, item in pairs:
        if isinstance(item, (list, dict)):
            yield (*path, key), item
        yield from containers_in((*path, key), item)
