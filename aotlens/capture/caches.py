"""Functions whose results Python keeps (`functools.lru_cache`): what a recording left there is dropped.

A recorded function that asks such a function leaves a fake tensor in its cache, which the next caller would
be given.  The user's own caches are found by name, as all that a function reads; those of packages by
the code that ran.
"""

import functools
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from aotlens.capture.frames import is_installed_file
from aotlens.capture.namespaces import filled_cells
from aotlens.capture.reach import Cache
from aotlens.ir.program import Node

MOST_WRAPPERS = 4
"""Decorators around a cached function that are looked through."""


@contextmanager
def caches_left_clean(recorded: list[Node], own: "Iterable[Cache[Any]]") -> Iterator[None]:
    """Empty the caches that take something in meanwhile: those of `own`, and of packages."""
    before = [(cache, cache.cache_info().misses) for cache in own]
    first = len(recorded)
    try:
        yield
    finally:
        for cache, misses in before:
            if cache.cache_info().misses > misses:
                cache.cache_clear()
        frames = (frame for node in recorded[first:] for frame in node.origin.place.frames)
        for code in {id(code): code for code, _ in frames}.values():  # to hash code costs more
            for cache in _caches_of(code) if is_installed_file(code.co_filename) else ():
                cache.cache_clear()


@functools.lru_cache(maxsize=10_000)
def _caches_of(code: CodeType) -> "tuple[Cache[Any], ...]":
    """The caches around a function of a module or class, through the decorators between."""
    found: Any = _modules(len(sys.modules)).get(code.co_filename)
    for name in code.co_qualname.split("."):
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return tuple(_caches_within(getattr(found, "__func__", found), code, MOST_WRAPPERS))


def _caches_within(value: Any, code: CodeType, depth: int) -> "Iterator[Cache[Any]]":
    if isinstance(value, Cache):
        yield value
    elif isinstance(value, FunctionType) and value.__code__ is not code and depth:
        for _, cell in filled_cells(value):
            yield from _caches_within(cell.cell_contents, code, depth - 1)


@functools.lru_cache(maxsize=1)
def _modules(count: int) -> dict[str, Any]:
    """By file, while so many are imported."""
    return {getattr(module, "__file__", None) or "": module for module in list(sys.modules.values())}
