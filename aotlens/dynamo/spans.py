"""Dynamo's stack frames as the user's expressions.

Invariant: a span is exactly the expression at which Dynamo stopped: of the syntax nodes with its start, the
one with its end.
"""

import ast
import linecache
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from aotlens.capture.provenance.frames import is_first_party_file, is_user_file
from aotlens.model.source import Span

__all__ = [
    "Definition",
    "definition_at",
    "expression_text",
    "span_of",
    "statement_span",
    "user_frame",
    "user_span",
]

_COMMENT = re.compile(r"\s+#.*$")
_LONGEST = 100
"""The most characters of an expression that are shown."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A function in a file."""

    qualname: str
    line: int
    """The line of the `def`, below its decorators."""


def user_frame(frames: Sequence[traceback.FrameSummary]) -> int | None:
    """Return the index of the innermost frame in the user's own files, else in an installed package."""
    files = [frame.filename for frame in frames]
    for is_wanted in (is_first_party_file, is_user_file):
        index = next((index for index in reversed(range(len(files))) if is_wanted(files[index])), None)
        if index is not None:
            return index
    return None


def user_span(frames: Sequence[traceback.FrameSummary]) -> Span | None:
    """Return the expression of the innermost frame of the user's; None without such a frame."""
    index = user_frame(frames)
    return None if index is None else span_of(frames[index])


def span_of(frame: traceback.FrameSummary) -> Span:
    """Return the expression of a frame; the whole statement where columns are unknown."""
    line = frame.lineno or 1
    if frame.colno is None or frame.end_colno is None:
        return statement_span(frame.filename, line)
    end_line = frame.end_lineno or line
    return _narrowed(frame.filename, (line, frame.colno, end_line, frame.end_colno))


def statement_span(file: str, line: int) -> Span:
    """Return the first line of the statement that begins on a line, or that a decorator on it belongs to.

    An empty span, which means the whole line, if no statement begins there or its header continues on
    the next line.
    """
    line = _decorated(file).get(line, line)
    for node in _nodes(file).get(line, ()):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        if body and body[0].lineno > line + 1:
            continue
        if body or node.end_lineno != line:
            text = _COMMENT.sub("", linecache.getline(file, line).rstrip())
            return Span(file, line, node.col_offset, line, len(text.encode()))
        return Span(file, line, node.col_offset, line, node.end_col_offset or 0)
    return Span(file, line, 0, line, 0)


def _narrowed(file: str, position: tuple[int, int, int, int]) -> Span:
    """Narrow an `if` or `while` to its condition, a `for` to its iterable, a `with` to its context manager.

    Up to torch 2.13 the last line is unknown, so a node is identified by its end column.
    """
    line, col, end_line, end_col = position
    nodes = [node for node in _nodes(file).get(line, ()) if node.col_offset == col]
    exact = [node for node in nodes if node.end_col_offset == end_col and node.end_lineno == end_line]
    exact = exact or [node for node in nodes if node.end_col_offset == end_col]
    for node in exact:
        inner: ast.AST = node
        if isinstance(node, ast.If | ast.While | ast.Assert):
            inner = node.test
        elif isinstance(node, ast.For):
            inner = node.iter
        elif isinstance(node, ast.With):  # the instruction of each item has the whole statement's range
            first, last = node.items[0].context_expr, node.items[-1].context_expr
            end = last.end_lineno or line, last.end_col_offset or col
            return Span(file, first.lineno, first.col_offset, *end)
        elif isinstance(node, ast.Expr):
            inner = node.value
        if isinstance(inner, ast.expr | ast.stmt):
            return Span(
                file, inner.lineno, inner.col_offset, inner.end_lineno or line, inner.end_col_offset or col
            )
    if end_line == line and end_col < col:
        end_col = len(linecache.getline(file, line).rstrip().encode())
    return Span(file, line, col, end_line, end_col)


def expression_text(span: Span) -> str:
    """Return the source of a span on one line, shortened in the middle."""
    lines = linecache.getlines(span.file)[span.line - 1 : span.end_line]
    if not lines:
        return ""
    encoded = [line.encode() for line in lines]
    if span.end_col or span.end_line > span.line:
        encoded[-1] = encoded[-1][: span.end_col]
    encoded[0] = encoded[0][span.col :]
    text = " ".join(b" ".join(encoded).decode(errors="replace").split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]} … {text[-17:]}"


@lru_cache(maxsize=4096)
def definition_at(file: str, line: int) -> Definition | None:
    """Return the innermost function around a line; None at module level."""
    tree = _tree(file)
    names: list[str] = []
    definition: Definition | None = None
    children = list(ast.iter_child_nodes(tree)) if tree is not None else []
    while children:
        enclosing = next((node for node in children if _holds(node, line)), None)
        if isinstance(enclosing, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if names and definition is not None and names[-1] == definition.qualname.rpartition(".")[2]:
                names.append("<locals>")
            names.append(enclosing.name)
            if not isinstance(enclosing, ast.ClassDef):
                definition = Definition(".".join(names), enclosing.lineno)
        children = [] if enclosing is None else list(ast.iter_child_nodes(enclosing))
    return definition


def _holds(node: ast.AST, line: int) -> bool:
    first = getattr(node, "lineno", None)
    if first is None:
        return False
    decorators = getattr(node, "decorator_list", None) or ()
    first = min([first, *(entry.lineno for entry in decorators)])
    return bool(first <= line <= (getattr(node, "end_lineno", None) or first))


@lru_cache(maxsize=256)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # a notebook cell, or a file that has changed
        return None


@lru_cache(maxsize=256)
def _decorated(file: str) -> dict[int, int]:
    """Map the line of each decorator to the line of its `def` or `class`."""
    tree = _tree(file)
    return {
        decorator.lineno: node.lineno
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for decorator in node.decorator_list
    }


@lru_cache(maxsize=256)
def _nodes(file: str) -> dict[int, list[ast.expr | ast.stmt]]:
    """Return the nodes of a file by their first line, outer ones first."""
    by_line: dict[int, list[ast.expr | ast.stmt]] = {}
    tree = _tree(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.expr | ast.stmt):
            by_line.setdefault(node.lineno, []).append(node)
    return by_line
