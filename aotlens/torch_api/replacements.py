"""Names of torch and Triton that are replaced within a context, each with its reason."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Replacement", "replacing"]

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Replacement:
    """One name that is replaced within the context."""

    owner: Any
    name: str
    replacement: Any
    reason: str


@contextmanager
def replacing(replacement: Replacement) -> Iterator[None]:
    """Replace one name within the context."""
    owner, name = replacement.owner, replacement.name
    before = vars(owner).get(name, _MISSING)  # not getattr, which would unwrap static methods
    setattr(owner, name, replacement.replacement)
    try:
        yield
    finally:
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
