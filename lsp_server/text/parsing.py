"""Python source as a syntax tree, for every thread of the server.

Invariant: at most one thread parses at a time. CPython counts the depth of the tree that it builds in state
that threads share, and raises SystemError ("AST constructor recursion depth mismatch") when a garbage
collection or a thread switch happens while it builds a large tree.
"""

import ast
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["parse", "parsing"]

T = TypeVar("T")

_ONE_AT_A_TIME = threading.Lock()
_TRIES = 3


def parse(source: str) -> ast.Module | None:
    """Return the tree of a text; None where it does not parse: half-typed, a null byte, nested too deeply."""
    return parsing(lambda: ast.parse(source))


def parsing(work: Callable[[], T]) -> T | None:
    """Return the result of `work`, which parses a text; None where the text does not parse.

    `work` is called again a few times after a SystemError of the parser.
    """
    for _ in range(_TRIES):
        with _ONE_AT_A_TIME:
            try:
                return work()
            except (SyntaxError, ValueError, RecursionError):
                return None
            except SystemError:
                continue
    return None
