"""One case that the engine does not support, as a row of the table."""

from dataclasses import dataclass

from aotlens.errors import UnsupportedError

__all__ = ["Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """A case; `{input}` and the like stand for the user's names, which the raising stage fills in."""

    name: str
    """What tests and the page of unsupported cases call it."""
    text: str
    """What the user's code does, as the object of "not supported: …"."""
    advice: str = ""
    """What to do instead; empty where there is no way around it."""
    error: type[UnsupportedError] = UnsupportedError
    """The class that is raised: some programs written for `functorch.compile` expect a built-in error."""
