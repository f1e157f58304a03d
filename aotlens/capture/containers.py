"""What the function changes besides its result: lists and dicts that it was given, rebound buffers.

Invariant: what a container holds after the call is a result of the graph like any other, which the wrapper
puts into the caller's own container; what it still holds from before is left alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aotlens.capture.paths import flatten_with_path
from aotlens.errors import UnsupportedError
from aotlens.report.records import Span
from aotlens.torch_api import pytree

KEYS = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Item:
    """One item that a container holds after the call."""

    key: Any
    """Its key in a dict; None in a list."""
    before: int | None
    """Its position in the list before the call; None for an item that is new."""
    spec: Any = None
    """The pytree structure of a new item."""


@dataclass(frozen=True, slots=True)
class Refill:
    """What the wrapper does to one of the caller's containers."""

    place: str
    """Where the caller's container is found: `args[0]['x']`."""
    keyed: bool
    """Whether it is a dict."""
    items: tuple[Item, ...]
    """All of a list's; of a dict's those that are new."""
    removed: tuple[Any, ...]
    """Keys that a dict no longer has."""


@dataclass(frozen=True, slots=True)
class WithRefills:
    """A function's result, and the containers that it changed."""

    result: Any
    refills: tuple[Refill, ...]
    leaves: tuple[tuple[str, Any], ...]
    """What the containers newly hold, flat, each with a name; then the rebound buffers."""
    rebound: tuple[str, ...] = ()
    """Buffers that the module bound to another tensor."""


@dataclass(frozen=True, slots=True)
class _Seen:
    place: str
    container: Any
    before: Any
    """A shallow copy."""


def watch_containers(args: Any, kwargs: Any) -> tuple[_Seen, ...]:
    """Remember every list and dict among the arguments."""
    found = [
        *_inside("args", args),
        *(seen for key, item in kwargs.items() for seen in _walk(f"kwargs[{key!r}]", item)),
    ]
    return tuple(found)


def _walk(place: str, value: Any) -> Iterator[_Seen]:
    if isinstance(value, (list, dict)):
        yield _Seen(place, value, value.copy())
    yield from _inside(place, value)


def _inside(place: str, value: Any) -> Iterator[_Seen]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(f"{place}[{key!r}]", item)
    elif type(value) in (list, tuple):
        for at, item in enumerate(value):
            yield from _walk(f"{place}[{at}]", item)


def with_refills(
    result: Any, seen: tuple[_Seen, ...], rebound: tuple[tuple[str, Any], ...], span: Span | None
) -> Any:
    """The result, with what is not as it was: containers and buffers; the result alone where all is."""
    leaves: list[tuple[str, Any]] = []
    refills = tuple(_refill(one, leaves, span) for one in seen if not _same(one))
    if not refills and not rebound:
        return result
    return WithRefills(result, refills, (*leaves, *rebound), tuple(fqn for fqn, _ in rebound))


def _same(seen: _Seen) -> bool:
    now, before = seen.container, seen.before
    if isinstance(now, dict):
        return now.keys() == before.keys() and all(now[key] is before[key] for key in now)
    return len(now) == len(before) and all(new is old for new, old in zip(now, before, strict=True))


def _refill(seen: _Seen, leaves: list[tuple[str, Any]], span: Span | None) -> Refill:
    now, before = seen.container, seen.before
    items: list[Item] = []
    if isinstance(now, dict):
        for key, value in now.items():
            if key not in before or before[key] is not value:
                items.append(
                    Item(_checked(key, span), None, _taken_apart(f"{seen.place}[{key!r}]", value, leaves))
                )
        removed = tuple(key for key in before if key not in now)
        return Refill(seen.place, True, tuple(items), removed)
    for at, value in enumerate(now):
        old = next((index for index, item in enumerate(before) if item is value), None)
        spec = None if old is not None else _taken_apart(f"{seen.place}[{at}]", value, leaves)
        items.append(Item(None, old, spec))
    return Refill(seen.place, False, tuple(items), ())


def _checked(key: Any, span: Span | None) -> Any:
    if not isinstance(key, KEYS):
        kind = type(key).__name__
        raise UnsupportedError(f"a dict argument that gets a key of type `{kind}`", span, "use text as keys")
    return key


def _taken_apart(place: str, value: Any, leaves: list[tuple[str, Any]]) -> Any:
    paths, spec = flatten_with_path(value)
    leaves.extend((place + pytree.keystr(path), leaf) for path, leaf in paths)
    return spec
