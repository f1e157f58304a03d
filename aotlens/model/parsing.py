"""JSON of reports with 100,000 nodes, read in the memory and time that their facts take.

Invariant: what is read equals what `json.loads` gives; only equal places of the source are one object.
"""

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["no_collection", "parsed"]


def parsed(text: str | bytes) -> Any:
    """The JSON data in a text. Raises json.JSONDecodeError."""
    with no_collection():
        return json.loads(text, object_hook=_Spans().share)


class _Spans:
    """The places of one report: each node has several, and all of them are on few lines."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def share(self, data: dict[str, Any]) -> dict[str, Any]:
        if "end_col" not in data:
            return data
        try:
            return self._known.setdefault(tuple(data.items()), data)
        except TypeError:  # no place of ours: who decodes it says what is wrong
            return data


@contextmanager
def no_collection() -> Iterator[None]:
    """Millions of objects are made inside and none is garbage: looking for some takes most of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
