"""The records of a cache entry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredResult:
    """One compiled result: the module text, and the objects to which it binds its names."""

    source: str
    compiled: tuple[str, ...]
    """Graphs whose code is loaded with the text."""
    lazy: tuple[str, ...]
    """Graphs whose code is loaded at their first call."""
    constants: dict[str, str]
    """By a name in the text, the path of its tensor in the captured graph."""
    differentiable: bool
    """Whether double backward is possible, for which the stages run after all."""
    partial_backward: bool
    """Whether tangents may be undefined, for which the stages run after all."""
    guards: str | None
    """The assumptions about symbolic sizes, as a torch expression; None where no size is symbolic."""
    cold_ms: float
    """The time that compiling took."""
