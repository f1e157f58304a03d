"""Finds where a function makes an argument require grad: no operator records it, so the source is read.

Invariant: a location is returned only where the argument occurs under its own name.
"""

import ast
import linecache
from collections.abc import Iterator

from aotlens.model.report import Site, Span
from aotlens.model.spans import site_at


def requiring_sites(function: Span | None, name: str) -> tuple[Site, ...]:
    """`x.requires_grad_()` and `x.requires_grad = True` in the definition at that line."""
    if function is None:
        return ()
    try:
        tree = ast.parse("".join(linecache.getlines(function.file)))
    except SyntaxError:  # a cell, or a file that was changed since
        return ()
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, kinds) and function.line in _first_lines(node):
            spans = (_span(function.file, expression) for expression in _requiring(node, name))
            return tuple(site_at(span) for span in spans)
    return ()


def _first_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    return {node.lineno, *(decorator.lineno for decorator in node.decorator_list)}


def _requiring(function: ast.AST, name: str) -> Iterator[ast.expr | ast.stmt]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) == f"{name}.requires_grad_":
                yield node
        elif isinstance(node, ast.Assign) and any(
            ast.unparse(target) == f"{name}.requires_grad" for target in node.targets
        ):
            yield node


def _span(file: str, node: ast.expr | ast.stmt) -> Span:
    end_line, end_col = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return Span(file, node.lineno, node.col_offset, end_line, end_col)
