"""Return spans of the report for the lines in a log.

Invariant: a log has lines without columns, so a span is the whole line unless the expression is known; a file
that is no Python source is never opened, whatever the log calls it.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aotlens.model.report import Site, Span
from aotlens.model.spans import source_line
from aotlens.trace.graphs.records import GraphNode, Line

__all__ = ["Locate", "enclosing_name", "first_spans", "qualified_name", "site_of", "span_of", "whole_line"]

Locate = Callable[[Line, GraphNode | None], Span]
"""Returns the span of a logged line on this machine; the node identifies the expression."""

_SOURCE = re.compile(r".+\.(py|pyi|pyx|ipynb)$|<ipython-input-[\w-]+>$")
MAX_SOURCE_BYTES = 4 << 20


def whole_line(line: Line, node: GraphNode | None = None) -> Span:
    """Return the logged line, with its text if the file exists here, else empty."""
    file = line.file if _SOURCE.match(line.file) else f"not a source file: {line.file}"
    text = source_line(file, line.line)
    start = len(text.encode()) - len(text.lstrip().encode())
    return Span(file, line.line, start, line.line, max(start, len(text.rstrip().encode())))


def span_of(locate: Locate, node: GraphNode) -> tuple[Span, ...]:
    """Return the node's span in the user's source; none if torch has none."""
    return (locate(node.line, node),) if node.line is not None else ()


def site_of(locate: Locate, node: GraphNode) -> tuple[Site, ...]:
    """Return the node's site, with the line's text when it was compiled."""
    if node.line is None:
        return ()
    return (Site(locate(node.line, node), node.line.code, node.target),)


def first_spans(locate: Locate, nodes: Iterable[GraphNode]) -> tuple[Span, ...]:
    """Return the lines of several nodes, each once."""
    return tuple(dict.fromkeys(span for node in nodes for span in span_of(locate, node)))


def qualified_name(file: str, line: int, name: str) -> str:
    """Return `Net.forward` if the file exists here and defines it at the line; else the name alone."""
    definitions = (each for each in _definitions(file) if each.name == name and line in each.starts)
    return next((each.qualname for each in definitions), name)


def enclosing_name(file: str, line: int, name: str) -> str:
    """Return `Net.forward` if the line is within that function's definition here; else the name alone."""
    around = [each for each in _definitions(file) if each.name == name and each.starts[0] <= line <= each.end]
    return around[-1].qualname if around else name


@dataclass(frozen=True, slots=True)
class _Definition:
    """One function of a file; an inner one comes after its outer one."""

    name: str
    qualname: str
    starts: tuple[int, int]
    """The line of the first decorator, and that of `def`."""
    end: int


@lru_cache(maxsize=256)
def _definitions(file: str) -> tuple[_Definition, ...]:
    path = Path(file)
    try:
        if path.suffix != ".py" or path.stat().st_size > MAX_SOURCE_BYTES:
            return ()
        return tuple(_definitions_in(ast.parse(path.read_bytes()), ""))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _definitions_in(tree: ast.AST, prefix: str) -> Iterator[_Definition]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min((decorator.lineno for decorator in child.decorator_list), default=child.lineno)
            end = child.end_lineno or child.lineno
            yield _Definition(child.name, f"{prefix}{child.name}", (first, child.lineno), end)
            yield from _definitions_in(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _definitions_in(child, f"{prefix}{child.name}.")
        else:
            yield from _definitions_in(child, prefix)
