"""What is not as it was before the recording, at the places that a function reaches; and putting it back."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType, GeneratorType, MethodType
from typing import Any

import torch

from aotlens.capture.hidden_state import items_of
from aotlens.capture.namespaces import MISSING, filled_cells, namespace
from aotlens.capture.reach import Instance, Place, Reach, base_of, copied
from aotlens.capture.surroundings import PLAIN, is_unchanged, same_items
from aotlens.torch_api.fake import FakeTensor


@dataclass(frozen=True, slots=True)
class Change:
    """One place that is not as it was."""

    place: Place
    now: Any
    """What the name is bound to; for a container, a copy of what it holds."""
    held: Any
    """What a container held before; None where the name itself is bound anew."""
    told: str = ""
    """The place in the user's own names; empty until it is known that something is left."""

    @property
    def said(self) -> str:
        what = self.place.what if self.held is None else f"the {type(self.place.value).__name__}"
        return f"{what} `{self.place.path}`"


def changes_in(around: Reach) -> Iterator[Change]:
    seen: set[int] = set()
    named: set[tuple[int, Any]] = set()
    for place in around.places:
        named.add((id(place.store), place.name))
        now = place.now()
        if place.content is not None and id(place.value) not in seen:
            seen.add(id(place.value))
            now_held = copied(place.value)
            if not same_items(place.value, place.content) and _is_own(place, now_held):
                yield Change(place, now_held, place.content)
        if now is not place.value and not _is_unchanged_binding(place, now) and _is_own(place, now):
            yield Change(place, now, None)
    for instance in around.instances:
        yield from _changed_attributes(instance, named)


def _is_unchanged_binding(place: Place, now: Any) -> bool:
    return place.content is None and is_unchanged(place)


def _changed_attributes(instance: Instance, named: set[tuple[int, Any]]) -> Iterator[Change]:
    """Of an object: what no code names, or was not there before."""
    store, before = instance.store, instance.before
    for name in dict.fromkeys((*before, *store)):
        now, then = store.get(name, MISSING), before.get(name, MISSING)
        if now is not then and (id(store), name) not in named:
            yield Change(Place("the attribute", name, store, then), now, None)


def _is_own(place: Place, now: Any) -> bool:
    """Whether to look after it: a package's objects see to themselves, but not to fake tensors."""
    return not place.foreign or holds_fake(now)


def holds_fake(value: Any) -> bool:
    """Whether a tensor of a recording, or a place of its history, is found in a value."""
    waiting, seen = [value], set[int]()
    while waiting:
        part = waiting.pop()
        if type(part) is FakeTensor or isinstance(part, torch.autograd.graph.Node):
            return True
        if id(part) not in seen and not isinstance(part, (*PLAIN, type, torch.Tensor)):
            seen.add(id(part))
            waiting.extend(_parts(part))
    return False


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from dict.values(value)
    elif isinstance(value, (list, tuple, set, deque)):
        yield from base_of(value).__iter__(value)
    elif isinstance(value, FunctionType):
        yield from (cell.cell_contents for _, cell in filled_cells(value))
    elif isinstance(value, MethodType):
        yield value.__self__
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, GeneratorType):
        yield from value.gi_frame.f_locals.values() if value.gi_frame is not None else ()
    elif isinstance(value, Iterator) and not type(value).__dictoffset__:
        yield from items_of(value)
    elif isinstance(value, torch.nn.Module) or not type(value).__module__.startswith("torch."):
        yield from (getattr(value, "__dict__", None) or {}).values()


def restore(change: Change) -> None:
    _put(change.place, change.place.value, change.held)


def put_again(change: Change) -> None:
    if change.held is None:
        _put(change.place, change.now, None)
    else:
        _put(change.place, change.place.value, change.now)


def _put(place: Place, value: Any, content: Any) -> None:
    """Bind a name to a value; or give a container this content."""
    if content is not None:
        _refill(value, content)
    elif value is MISSING:
        namespace(place.store).pop(place.name, None)
    else:
        namespace(place.store)[place.name] = value


def _refill(container: Any, content: Any) -> None:
    base: Any = OrderedDict if isinstance(container, OrderedDict) else base_of(container)
    base.clear(container)
    if isinstance(container, dict):
        for key, value in content.items():
            base.__setitem__(container, key, value)
    else:
        (base.update if base is set else base.extend)(container, content)


@contextmanager
def as_it_was(around: Reach) -> Iterator[None]:
    """Within it, all that the function reaches is as it was before the recording; afterwards as it is now."""
    later = list(changes_in(around))
    for change in later:
        restore(change)
    try:
        yield
    finally:
        for change in list(changes_in(around)):
            restore(change)
        for change in later:
            put_again(change)
