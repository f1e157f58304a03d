"""Python source as a syntax tree, for every thread of the server.

Invariant: at most one thread parses at a time.  CPython counts the depth of a tree that it builds in a state
that threads share, and raises SystemError ("AST constructor recursion depth mismatch") when a collection of
garbage, or a switch of threads, falls into the construction of a large tree.
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
    """The tree of a text; None where it does not parse: half-typed, a null byte, nested without end."""
    return parsing(lambda: ast.parse(source))


def parsing(work: Callable[[], T]) -> T | None:
    """What `work` makes of a text by parsing it; None where the text does not parse.

    `work` is called again after a SystemError of the parser's, and takes a few tries at most.
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
