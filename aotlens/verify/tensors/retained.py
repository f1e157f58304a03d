"""Find tensors that a call stores: in attributes, closures and the containers in them.

Invariant: tensors that were there before the call are not listed.
"""

import re
import types
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from typing import Any

from torch import Tensor, nn

from aotlens.capture.free_variables.mentions import defaults_of, is_user_class
from aotlens.torch_api.operators import pytree
from aotlens.verify.tensors.prepared_call import Named, PreparedCall

OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that every module has."""
POSITION = re.compile(r"\[\d+\]")
CONTAINERS = (list, tuple, dict, deque)
DEPTH = 3
"""How many levels of functions and objects are searched."""


def retained_tensors(prepared: PreparedCall) -> list[Named]:
    """Return every tensor that the callable and its arguments hold in addition to their inputs."""
    known: set[int] = set()
    tensors = list(_retained_by("self", prepared.fn, DEPTH, known))
    leaves = pytree.tree_leaves((prepared.args, dict(prepared.kwargs)))
    objects = (leaf for leaf in leaves if not isinstance(leaf, Tensor))
    return tensors + [named for leaf in objects for named in _retained_by("argument", leaf, 1, known)]


def new_tensors(prepared: PreparedCall, old: set[int]) -> tuple[Named, ...]:
    """Return the new tensors; their names omit list positions, because lists grow."""
    new = (item for item in retained_tensors(prepared) if id(item.tensor) not in old)
    named = ((POSITION.sub("[]", item.name), item.tensor) for item in new)
    return tuple(Named(f"{name}, left as {number}", tensor) for number, (name, tensor) in enumerate(named, 1))


def _retained_by(path: str, value: Any, depth: int, known: set[int]) -> Iterator[Named]:
    if isinstance(value, Tensor):
        yield Named(path, value)
        return
    if id(value) in known or not depth:
        return
    known.add(id(value))
    if isinstance(value, CONTAINERS):
        fields = [f".{name}" for name in getattr(value, "_fields", ())]  # of a named tuple
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for (key, item), name in zip_longest(items, fields):
            yield from _retained_by(path + (name or f"[{key!r}]"), item, depth, known)
    else:
        yield from _inside(path, value, depth, known)


def _inside(path: str, value: Any, depth: int, known: set[int]) -> Iterator[Named]:
    if isinstance(value, nn.Module):
        for name, layer in value.named_modules():
            inner = f"{path}.{name}" if name else path
            yield from _attributes(inner, layer, OF_TORCH, depth, known)
            for hook in (*layer._forward_hooks.values(), *layer._forward_pre_hooks.values()):
                yield from _retained_by(f"hook of {inner}", hook, depth, known)
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield from _retained_by(name, _content(cell), depth - 1, known)
        for name, default in defaults_of(value).items():
            yield from _retained_by(name, default, depth - 1, known)
    elif isinstance(value, types.MethodType):
        yield from _retained_by(path, value.__self__, depth, known)
    elif isinstance(value, partial):
        yield from _retained_by(path, (value.func, value.args, value.keywords), depth, known)
    elif hasattr(value, "__dict__") and is_user_class(type(value)):
        yield from _attributes(path, value, frozenset(), depth, known)
        yield from _class_attributes(path, type(value), depth, known)


def _attributes(
    path: str, owner: Any, without: frozenset[str], depth: int, known: set[int]
) -> Iterator[Named]:
    for name, value in vars(owner).items():
        if name not in without:
            yield from _retained_by(f"{path}.{name}", value, depth - 1, known)


def _class_attributes(path: str, kind: type, depth: int, known: set[int]) -> Iterator[Named]:
    for base in filter(is_user_class, kind.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, (Tensor, *CONTAINERS)):
                yield from _retained_by(f"type({path}).{name}", value, depth - 1, known)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that is bound later
        return None
