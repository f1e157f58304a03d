"""`@aotlens.example(...)`: arguments with which a function or module class is traced.  Stdlib only.

Invariant: it only sets one attribute on the decorated object, so a script runs the same with it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from aotlens.model.report import Span

__all__ = ["DecoratedExample", "example", "examples_of"]

_ATTRIBUTE = "__aotlens_examples__"

Decorated = TypeVar("Decorated")


@dataclass(frozen=True, slots=True)
class DecoratedExample:
    """One use of the decorator."""

    arguments: tuple[object, ...]
    keywords: dict[str, object]
    construct: str | None
    span: Span
    """The line of the decorator."""


def example(
    *arguments: object, construct: str | None = None, **keywords: object
) -> Callable[[Decorated], Decorated]:
    """Return a decorator that gives a function, method or module class the arguments that it is traced with.

    A string is read as the comment form is (`"f32[8, 16]"`, `"bf16[16, 4] grad"`, `"'a string'"`), any other
    value is passed as it is.  `construct` is the Python call that makes the module: `"Block(64, heads=4)"`;
    a class without it is called without arguments.  Several decorators are several examples.
    """
    caller = sys._getframe(1)
    span = Span(caller.f_code.co_filename, caller.f_lineno, 0, caller.f_lineno, 0)
    recorded = DecoratedExample(arguments, keywords, construct, span)

    def mark(decorated: Decorated) -> Decorated:
        setattr(decorated, _ATTRIBUTE, (recorded, *examples_of(decorated)))
        return decorated

    return mark


def examples_of(decorated: object) -> tuple[DecoratedExample, ...]:
    """Return the examples of a decorated object, in source order; a subclass does not inherit them."""
    examples: tuple[DecoratedExample, ...]
    if isinstance(decorated, type):
        examples = decorated.__dict__.get(_ATTRIBUTE, ())
    else:
        examples = getattr(decorated, _ATTRIBUTE, ())
    return examples
