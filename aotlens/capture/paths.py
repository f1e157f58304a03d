"""Leaves of nested containers, each with the way that leads to it.

Invariant: every class that pytree takes apart is taken apart, and in its order; a class that was registered
without names for its parts has them by name where its context lists one per part, and by number elsewhere.
"""

from collections.abc import Iterator
from typing import Any

from aotlens.torch_api.operators import pytree

Path = tuple[Any, ...]


def flatten_with_path(tree: Any) -> tuple[list[tuple[Path, Any]], Any]:
    """`tree_flatten_with_path` that takes every registered class."""
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
    return [pytree.SequenceKey(at) for at in range(count)]
