"""Lists and dicts among the arguments: the paths to their leaves, and the items that the function binds anew.

Invariant: an item that is set is repeated at each call; any other change of a container is unsupported.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType
from typing import Any

import torch

from aotlens.capture.free_variables.guards import PLAIN
from aotlens.capture.free_variables.members import base_of, shallow_copy
from aotlens.capture.free_variables.namespaces import MISSING
from aotlens.errors import UnsupportedError
from aotlens.ir.slots import OuterObject
from aotlens.model.report import Span
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported

Path = tuple[Any, ...]


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


KEYS = (str, int, float, bool, type(None))
BOUND_KEYS = (Enum, torch.nn.Module, FunctionType, type, torch.dtype, torch.device)
"""Types of keys that the module text references by name instead of writing them out."""
VALUES = (
    torch.Tensor,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    torch.dtype,
    torch.device,
    type(None),
    *PLAIN,
)
"""Types of values that each call can bind."""


@dataclass(frozen=True, slots=True)
class Rebinding:
    """A name, or an item of a container, that each call binds to another value."""

    expression: str
    """The namespace or container as an expression of the wrapper: `args[0]['x']`; or a name for `store`."""
    store: Any
    """The namespace or container itself; None if it is part of an argument."""
    key: Any
    before: Any
    """The value before the call; MISSING if there was none."""
    is_item: bool
    """Whether `store` is a container of the user's, instead of a namespace."""
    description: str
    """For a message: `the attribute `last``."""
    user_name: str
    """`self.last`, `state['keys']`."""
    span: Span | None
    """The user's expression that binds it, or the function."""


def rebound_tensors(rebindings: tuple[Rebinding, ...]) -> Mapping[int, Rebinding]:
    """Return the rebindings of free variables that were tensors, by the identity of the former tensor."""
    return {
        id(rebinding.before): rebinding
        for rebinding in rebindings
        if rebinding.store is not None and isinstance(rebinding.before, torch.Tensor)
    }


def read_of_rebound(rebinding: Rebinding) -> UnsupportedError:
    """Return the error for a function that reads a tensor and binds its name to another one."""
    return unsupported("rebound-tensor-is-read", rebinding.span, name=rebinding.user_name)


@dataclass(frozen=True, slots=True)
class OutputWithUpdates:
    """A function's output and what it binds outside."""

    result: Any
    rebindings: tuple[Rebinding, ...]
    leaves: tuple[tuple[str, Any], ...]
    """The value of each rebinding, with a name; then the rebound buffers."""
    rebound: tuple[str, ...] = ()
    """Buffers that the module bound to another tensor."""
    existing_containers: tuple[tuple[tuple[int, ...], OuterObject], ...] = ()
    """Containers in the output that are the caller's own, or that also exist elsewhere."""


@dataclass(frozen=True, slots=True)
class ContainerSnapshot:
    path: Path
    """The path in `(args, kwargs)`."""
    container: Any
    before: Any = field(init=False)
    """A shallow copy."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "before", shallow_copy(self.container))

    @property
    def expression(self) -> str:
        """Return the container's expression: `args[0]['x']`."""
        which, *rest = self.path
        return ("kwargs" if which.idx else "args") + pytree.keystr(tuple(rest))


def watch_containers(args: Any, kwargs: Any) -> tuple[ContainerSnapshot, ...]:
    """Take a snapshot of every list and dict among the arguments."""
    return (
        *_nested_snapshots((pytree.SequenceKey(0),), args),
        *_nested_snapshots((pytree.SequenceKey(1),), kwargs),
    )


def _snapshots(path: Path, value: Any) -> Iterator[ContainerSnapshot]:
    if isinstance(value, (list, dict)):
        yield ContainerSnapshot(path, value)
    yield from _nested_snapshots(path, value)


def _nested_snapshots(path: Path, value: Any) -> Iterator[ContainerSnapshot]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _snapshots((*path, pytree.MappingKey(key)), item)
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            yield from _snapshots((*path, pytree.SequenceKey(index)), item)


def output_with_updates(
    result: Any,
    snapshots: tuple[ContainerSnapshot, ...],
    rebound: tuple[tuple[str, Any], ...],
    named: Callable[[Path], str],
    span: Span | None,
) -> Any:
    """Return the output with the items and buffers that the function bound, if there are any.

    `named` returns the user's name for a path in the arguments.

    Raises:
        UnsupportedError: a container lost items, or a list grew.
    """
    known = {id(snapshot.container): OuterObject(snapshot.expression) for snapshot in snapshots}
    existing = tuple(existing_containers(result, known))
    pairs = [pair for snapshot in snapshots for pair in _new_items(snapshot, named(snapshot.path), span)]
    if not pairs and not rebound and not existing:
        return result
    leaves = (*((rebinding.user_name, value) for rebinding, value in pairs), *rebound)
    rebindings = tuple(rebinding for rebinding, _ in pairs)
    return OutputWithUpdates(result, rebindings, leaves, tuple(fqn for fqn, _ in rebound), existing)


def _new_items(snapshot: ContainerSnapshot, name: str, span: Span | None) -> Iterator[tuple[Rebinding, Any]]:
    """Yield the items that the function set, with their values."""
    container = snapshot.container
    description = f"the {type(container).__name__} `{name}`"
    for key, before, value in changed_items(container, snapshot.before, description, span):
        item = f"{name}[{key!r}]"
        yield Rebinding(snapshot.expression, None, key, before, True, description, item, span), value


def changed_items(
    container: Any, before: Any, description: str, span: Span | None
) -> list[tuple[Any, Any, Any]]:
    """Return the key, the former and the new value of each item that was set.

    Raises:
        UnsupportedError: items were removed, inserted or reordered, or no module text can set one of them.
    """
    base = base_of(container)
    if base is dict:
        then, now = before, shallow_copy(container)
        is_kept = list(now)[: len(then)] == list(then)
    else:
        is_kept = base is list and base.__len__(container) == len(before)
        then, now = (dict(enumerate(items)) for items in (before, base.__iter__(container)))
    if not is_kept:
        raise unsupported("side-effect", span, binding=description)
    changes = [
        (key, then.get(key, MISSING), value)
        for key, value in now.items()
        if then.get(key, MISSING) is not value
    ]
    for key, _, value in changes:
        check_key(key, description, span)
        check_value(value, description, span)
    return changes


def check_key(key: Any, description: str, span: Span | None) -> None:
    """Check that the module text can express a key.

    Raises:
        UnsupportedError: the key is a tensor, or an object of this call only.
    """
    for part in key if type(key) is tuple else (key,):
        if not isinstance(part, (*KEYS, *BOUND_KEYS)):
            raise unsupported("container-key", span, type=type(part).__name__, container=description)


def check_value(value: Any, description: str, span: Span | None) -> None:
    """Check that a call can make a value that the function stores.

    Raises:
        UnsupportedError: it is a new container or object.
    """
    if not isinstance(value, VALUES):
        name = "new-layer-side-effect" if isinstance(value, torch.nn.Module) else "new-object-side-effect"
        raise unsupported(name, span, type=type(value).__name__, binding=description)


def existing_containers(
    value: Any, known: dict[int, OuterObject], path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], OuterObject]]:
    """Yield the known containers in an output, each with the positions that lead to it."""
    if id(value) in known:
        yield path, known[id(value)]
    elif known and type(value) in (tuple, list, dict):
        for index, item in enumerate(value.values() if type(value) is dict else value):
            yield from existing_containers(item, known, (*path, index))
