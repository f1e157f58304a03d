"""How a program of the list states what Dynamo does to it.

A comment `# HERE` marks the line of the expression; its columns are those of the expected text in that line.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["Expected", "Program", "compiled", "vector"]

MARK = "# HERE"
RELEASE = ".".join(torch.__version__.split(".")[:2])
"""The installed torch's, `2.13`."""
PYTHON = f"Python {sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Expected:
    """What the report says of a program, apart from times."""

    breaks: tuple[tuple[str, str, str], ...] = ()
    """Of each graph break the expression, torch's number, and the effect."""
    causes: tuple[tuple[str, str, str, str], ...] = ()
    """Of each recompilation the kind, the name, the old and the new value."""
    guarded: str = ""
    """The expression that made the guards, in the marked line; empty where none is known."""
    constants: tuple[tuple[str, str, str, str], ...] = ()
    """Of each constant the name, the value, the kind and the expression."""
    skipped: tuple[str, ...] = ()
    """The reasons of functions that Dynamo skips at a loss."""
    limit_hit: bool = False


@dataclass(slots=True)
class Program:
    """A function that compiles and calls something."""

    run: Callable[[], Any]
    expected: Expected
    """With the installed torch."""

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def marked_lines(self) -> dict[int, str]:
        """The marked lines of the source, by number."""
        lines, first = inspect.getsourcelines(self.run)
        return {first + index: line for index, line in enumerate(lines) if MARK in line}


@dataclass(slots=True)
class Programs:
    """Collects programs by a decorator.

    `releases` has, for releases of torch or Python with which Dynamo itself does something else, the facts
    that differ: by `2.11` or `Python 3.11`.
    """

    entries: list[Program] = field(default_factory=list)

    def __call__(
        self, releases: Mapping[str, Mapping[str, Any]] | None = None, **expected: Any
    ) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        def add(run: Callable[[], Any]) -> Callable[[], Any]:
            differing = [(releases or {}).get(installed, {}) for installed in (RELEASE, PYTHON)]
            facts = {**expected, **differing[0], **differing[1]}
            self.entries.append(Program(run, Expected(**facts)))
            return run

        return add


def compiled(function: Any = None, **options: Any) -> Any:
    """`torch.compile` with the cheapest backend."""
    if function is None:
        return lambda one: compiled(one, **options)
    return torch.compile(function, backend="eager", **options)


def vector(size: int = 4, **options: Any) -> torch.Tensor:
    """Positive numbers."""
    return torch.arange(1.0, size + 1.0, **options)
