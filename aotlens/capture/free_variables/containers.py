"""Lists, dicts, sets and deques: copied and filled without running a derived class's methods.

Also the paths to the leaves of nested arguments and results.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

from aotlens.torch_api.operators import pytree

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
    """Yield the items of a list or dict with the keys that replace them."""
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
