"""What a function may change besides its arguments: attributes of its modules, globals, closures.

Invariant: a change that a compiled call would not repeat is undone and refused by name; Dynamo, which
repeats such changes, is the way out.
"""

from collections import OrderedDict
from collections.abc import Callable
from types import CellType
from typing import Any

import torch

from aotlens.capture.reach import CONTAINERS, Place, Reach, base_of
from aotlens.errors import UnsupportedError
from aotlens.report.records import Span

PLAIN = (bool, int, float, complex, str, bytes)
"""Equal values of one of these types are the same to a compiled function."""


def refuse_changes(before: Reach, span: Span | None) -> None:
    """Undo and refuse.

    Raises:
        UnsupportedError: something is not as it was.
    """
    changed = [place for place in before.places if not place.foreign and not is_unchanged(place)]
    fresh = [(store, key) for store, keys in before.instances for key in store.keys() - keys]
    if not changed and not fresh:
        return
    what, name = _described(changed[0]) if changed else ("the attribute", fresh[0][1])
    for place in changed:
        _restore(place)
    for store, key in fresh:
        del store[key]
    raise UnsupportedError(
        f"a function that changes {what} `{name}`, which a compiled call would not do again",
        span,
        "return the value instead; or, where only a first call does it (it fills a cache), call the function "
        "once before it is compiled; or use `torch.compile(fn, backend='aotlens')`",
    )


def _described(place: Place) -> tuple[str, str]:
    inside = place.content is not None and place.now() is place.value
    return (f"the {type(place.value).__name__}" if inside else place.what), place.name


def is_unchanged(place: Place) -> bool:
    """Whether a name is bound to the same value, and a container has the same items."""
    now = place.now()
    if isinstance(now, torch.Tensor):
        return now is place.value and now.requires_grad is place.requires_grad
    if place.content is None:
        return now is place.value or _equal(now, place.value)
    return type(now) is type(place.value) and same_items(now, place.content)


def same_items(now: Any, then: Any) -> bool:
    """Whether two containers of one type have the same items in the same order."""
    base = base_of(now)
    if base.__len__(now) != len(then):
        return False
    if base is dict:
        return all(key in then and _same(value, then[key]) for key, value in dict.items(now))
    if base is set:
        return set.__eq__(now, then)
    return all(map(_same, base.__iter__(now), then))


def _same(now: Any, then: Any) -> bool:
    return now is then or _equal(now, then)


def _equal(now: Any, then: Any) -> bool:
    if type(now) is not type(then):
        return False
    if isinstance(now, tuple):
        return same_items(now, then)
    return isinstance(now, PLAIN) and bool(now == then)


def _restore(place: Place) -> None:
    value, store = place.value, place.store
    if place.content is not None:
        _refill(value, place.content)
    if isinstance(store, CellType):
        store.cell_contents = value
    elif isinstance(store, type):
        setattr(store, place.name, value)
    else:
        store[place.name] = value


def _refill(container: Any, content: Any) -> None:
    base = OrderedDict if isinstance(container, OrderedDict) else base_of(container)
    base.clear(container)
    if isinstance(container, dict):
        for key, value in content.items():
            base.__setitem__(container, key, value)
    else:
        (base.extend if base is list else base.update)(container, content)


def surroundings_check(before: Reach) -> Callable[[], bool]:
    """A function that tells whether all that a function can read is as it was.

    It is one expression of identities, some tens of nanoseconds each; only where one of them fails are values
    compared.
    """
    names: dict[str, Any] = {}
    conditions = []
    for index, place in enumerate(before.places):
        names[f"s{index}"], names[f"v{index}"] = place.store, place.value
        conditions.append(f"{_reading(place, index)} is v{index}")
        if isinstance(place.value, torch.Tensor):
            conditions.append(f"v{index}.requires_grad is {place.requires_grad}")
        if place.content is not None:
            names[f"c{index}"] = place.content
            items = f"same_items(v{index}, c{index})"
            own_length = type(place.value) not in CONTAINERS
            conditions.append(items if place.content or own_length else f"not v{index}")
    for index, (store, keys) in enumerate(before.instances):
        names[f"i{index}"] = store
        conditions.append(f"len(i{index}) == {len(keys)}")
    if not conditions:
        return lambda: True
    source = f"lambda: {' and '.join(conditions)}"
    same_objects = eval(source, {"same_items": same_items, **names})  # noqa: S307 (our own text)

    def fits() -> bool:
        try:
            if same_objects():
                return True
        except (KeyError, ValueError):  # a name that is gone
            return False
        same_keys = all(len(store) == len(keys) for store, keys in before.instances)
        return same_keys and all(map(is_unchanged, before.places))

    return fits


def _reading(place: Place, index: int) -> str:
    if isinstance(place.store, CellType):
        return f"s{index}.cell_contents"
    if isinstance(place.store, type):
        return f"s{index}.__dict__[{place.name!r}]"
    return f"s{index}[{place.name!r}]"
