"""What one entry of the cache holds, as data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor that the module text is bound to."""

    name: str
    """In the text."""
    path: str
    """Where the captured graph has it."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """One compiled result: the module text, and what its names are bound to."""

    source: str
    compiled: tuple[str, ...]
    """Graphs whose code is there when the text is loaded."""
    lazy: tuple[str, ...]
    """Graphs whose code is loaded at their first call."""
    constants: tuple[Constant, ...]
    differentiable: bool
    """Whether the backward can be differentiated again, which makes the stages run after all."""
    partial_backward: bool
    """Whether the backward may be that of some of the results, which makes the stages run after all."""
    guards: str | None
    """What was assumed of symbolic sizes, as an expression of torch's; None where none is symbolic."""
    cold_ms: float
    """What compiling took."""
