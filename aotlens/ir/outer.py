"""A result that is no tensor of the graph but an object that the caller has already."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """An object that is there before the result is put together."""

    name: str
    """An expression of the wrapper's: `args[0]`; or the name to bind `object` to."""
    object: Any = None
    """None where the expression alone leads to it."""
    path: str = ""
    """From there on: `['last']`."""
