"""Lists and dicts that the function changes, among its arguments or free variables, by path to each leaf."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType
from typing import Any

import torch

from aotlens.capture.free_variables.name_uses import NameWrite
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
REPEATABLE = (*KEYS, tuple)
"""Types of which one object may occur several times in a list."""
BOUND_KEYS = (Enum, torch.nn.Module, FunctionType, type, torch.dtype, torch.device)
"""Types of keys that the module text references by name instead of writing them out."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a container after the call."""

    key: Any
    """Its key in a dict; None in a list."""
    old_index: int | None
    """Its position in the list before the call; None for a new item."""
    spec: Any = None
    """The pytree structure of a new item."""


@dataclass(frozen=True, slots=True)
class ContainerUpdate:
    """What the wrapper does to one of the caller's containers."""

    expression: str
    """The container's expression, `args[0]['x']`; or a name for `store`."""
    keyed: bool
    """Whether items have keys: a dict, an object's attributes, a class, a closure variable."""
    items: tuple[Item, ...]
    """All items of a list; the new items of a keyed container."""
    removed: tuple[Any, ...]
    """Keys that a dict no longer has."""
    store: Any = None
    """The container itself, if it is not part of an argument."""
    binds_names: bool = False
    """Whether `store` is a namespace whose names are bound, instead of a container that is filled."""
    appends: bool = False
    """Whether new items are appended to whatever the list contains at each call; only if nobody reads it."""
    cleared: bool = False
    """Whether none of the old items remain."""
    required_items: tuple[tuple[Any, Any], ...] | None = None
    """Values by key that a call requires, since the function may have read them; `MISSING_ITEM` for none."""
    carried: tuple[tuple[Any, torch.Tensor], ...] = ()
    """Keys whose tensor one call leaves for the next, each with the tensor of the first call."""
    description: str = ""
    """For a message: `the attribute `last``."""
    user_name: str = ""
    """The user's name: `self.last`, `state['keys']`."""
    writes: tuple[NameWrite, ...] = ()
    """The user's expressions that write to it."""
    span: Span | None = None
    """The first of these, or the function."""


MISSING_ITEM = object()


@dataclass(frozen=True, slots=True)
class OutputWithUpdates:
    """A function's output and the containers that it changed."""

    result: Any
    container_updates: tuple[ContainerUpdate, ...]
    leaves: tuple[tuple[str, Any], ...]
    """The flat new values of the containers, each with a name; then the rebound buffers."""
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
        object.__setattr__(self, "before", self.container.copy())

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


class NewLeaves:
    """The flat new values of bindings and containers; a known container becomes a reference."""

    def __init__(self, known: dict[int, OuterObject], span: Span | None) -> None:
        self.leaves: list[tuple[str, Any]] = []
        """Each value with a name."""
        self.existing_containers: list[tuple[tuple[int, ...], OuterObject]] = []
        """Known containers in the output, each with the positions that lead to it."""
        self._marked_ids = {key for key, outer_object in known.items() if outer_object.object is not None}
        self._known = known
        """Containers by identity."""
        self._alive: list[Any] = []
        self._span = span

    def add(self, name: str, value: Any, location: OuterObject) -> Any:
        """Add a value's leaves and return its pytree structure; the wrapper stores it at `location`."""
        paths, spec = flatten_with_path(self._marked(value, location))
        self.leaves.extend((name + pytree.keystr(path), leaf) for path, leaf in paths)
        return spec

    def count(self) -> int:
        """Return the number of leaves."""
        return len(self.leaves)

    def truncate(self, count: int) -> None:
        """Remove all leaves after the first `count`."""
        del self.leaves[count:]

    def result(self, value: Any) -> Any:
        """Return the output with references in place of containers that the function does not receive."""
        if not self._known:
            return value
        self._note_existing(value, ())
        return (
            self._marked(value, None)
            if any(outer_object.object is not None for outer_object in self._known.values())
            else value
        )

    def _note_existing(self, value: Any, path: tuple[int, ...]) -> None:
        known = self._known.get(id(value))
        if known is not None:
            self.existing_containers.append((path, known))
        elif type(value) in (tuple, list, dict):
            for index, item in enumerate(value.values() if type(value) is dict else value):
                self._note_existing(item, (*path, index))

    def _marked(self, value: Any, location: OuterObject | None) -> Any:
        kind = type(value)
        if kind is tuple:
            return tuple(
                self._marked(item, location and _item_of(location, key)) for key, item in enumerate(value)
            )
        if kind not in (list, dict):
            return self._known.get(id(value), value) if id(value) in self._marked_ids else value
        known = self._known.get(id(value))
        if known is not None and (location is not None or id(value) in self._marked_ids):
            return known
        if location is not None:
            self._known[id(value)] = location
            self._alive.append(value)  # keeps the identity unique
        if kind is dict:
            return {
                key: self._marked(item, location and _item_of(location, key)) for key, item in value.items()
            }
        return [self._marked(item, location and _item_of(location, key)) for key, item in enumerate(value)]

    def checked_key(self, key: Any, container_name: str) -> Any:
        """Return a key that the module text can express.

        Raises:
            UnsupportedError: the key is a tensor, or an object of this call only.
        """
        inner = key if type(key) is tuple else (key,)
        for part in inner:
            if not isinstance(part, (*KEYS, *BOUND_KEYS)):
                kind = type(part).__name__
                raise unsupported("container-key", self._span, type=kind, container=container_name)
        return key


def output_with_updates(
    result: Any,
    snapshots: tuple[ContainerSnapshot, ...],
    rebound: tuple[tuple[str, Any], ...],
    named: Callable[[Path], str],
    span: Span | None,
) -> Any:
    """Return the output with the changed containers and buffers; the plain output if nothing changed.

    `named` returns the user's name for a path in the arguments.
    """
    if not snapshots and not rebound:
        return result
    leaves = NewLeaves(
        {id(snapshot.container): OuterObject(snapshot.expression) for snapshot in snapshots}, span
    )
    refills = tuple(
        _update_of(snapshot, leaves, named(snapshot.path), span)
        for snapshot in snapshots
        if not _is_unchanged(snapshot)
    )
    result = leaves.result(result)
    if not refills and not rebound and not leaves.existing_containers:
        return result
    flat = (*leaves.leaves, *rebound)
    return OutputWithUpdates(
        result, refills, flat, tuple(fqn for fqn, _ in rebound), tuple(leaves.existing_containers)
    )


def _is_unchanged(snapshot: ContainerSnapshot) -> bool:
    now, before = snapshot.container, snapshot.before
    if isinstance(now, dict):
        return now.keys() == before.keys() and all(now[key] is before[key] for key in now)
    return len(now) == len(before) and all(new is old for new, old in zip(now, before, strict=True))


def _update_of(
    snapshot: ContainerSnapshot, leaves: NewLeaves, user_name: str, span: Span | None
) -> ContainerUpdate:
    location = OuterObject(snapshot.expression)
    if isinstance(snapshot.container, dict):
        items, removed = new_items(user_name, snapshot.container, snapshot.before, leaves, location)
        return ContainerUpdate(snapshot.expression, True, items, removed, user_name=user_name, span=span)
    items = list_items(user_name, snapshot.container, snapshot.before, leaves, location)
    return ContainerUpdate(snapshot.expression, False, items, (), user_name=user_name, span=span)


def new_items(
    user_name: str, now: Any, before: Any, leaves: NewLeaves, location: OuterObject
) -> tuple[tuple[Item, ...], tuple[Any, ...]]:
    """Return the new items of a dict, and the keys that it lost."""
    items = [
        Item(
            leaves.checked_key(key, user_name),
            None,
            leaves.add(f"{user_name}[{key!r}]", value, _item_of(location, key)),
        )
        for key, value in now.items()
        if key not in before or before[key] is not value
    ]
    return tuple(items), tuple(key for key in before if key not in now)


def list_items(
    user_name: str, now: Any, before: Any, leaves: NewLeaves, location: OuterObject
) -> tuple[Item, ...]:
    """Return all items of a list: old ones by position, and new ones.

    A number or string may occur several times as one object; occurrences without an old position are new.
    """
    items: list[Item] = []
    used: set[int] = set()
    by_object: dict[int, list[int]] = {}
    for known, item in enumerate(before):
        by_object.setdefault(id(item), []).append(known)
    for index, value in enumerate(now):
        positions = by_object.get(id(value), [])
        repeated_position = None if isinstance(value, REPEATABLE) or not positions else positions[0]
        old = next((known for known in positions if known not in used), repeated_position)
        if old is not None:
            used.add(old)
            items.append(Item(None, old))
        else:
            items.append(
                Item(None, None, leaves.add(f"{user_name}[{index}]", value, _item_of(location, index)))
            )
    return tuple(items)


def _item_of(location: OuterObject, key: Any) -> OuterObject:
    return OuterObject(location.name, location.object, f"{location.path}[{key!r}]")
