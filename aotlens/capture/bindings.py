"""Which expression of a file gives each local variable its value, from the file's text."""

import ast
import linecache
from functools import lru_cache

from aotlens.model.report import Span


@lru_cache(maxsize=64)
def bound_expressions(filename: str) -> dict[Span, str]:
    """By the span of the expression: the name that it is assigned to; empty when the file does not parse.

    `x += y` computes at the whole statement.
    """
    found = {}
    for node in _statements(filename):
        target, value = _target(node), getattr(node, "value", None)
        if target is not None and value is not None:
            found[_span(filename, node if isinstance(node, ast.AugAssign) else value)] = target.id
        names = _names(node)
        if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
            found |= {_span(filename, one): name for one, name in zip(value.elts, names, strict=True)}
    return found


@lru_cache(maxsize=64)
def unpacked_expressions(filename: str) -> dict[Span, tuple[str, ...]]:
    """By the span of an expression that is taken apart (`q, k, v = x.unbind()`): the names, in order."""
    return {
        _span(filename, node.value): names
        for node in _statements(filename)
        if isinstance(node, ast.Assign) and (names := _names(node)) and not isinstance(node.value, ast.Tuple)
    }


@lru_cache(maxsize=64)
def _statements(filename: str) -> tuple[ast.AST, ...]:
    try:
        return tuple(ast.walk(ast.parse("".join(linecache.getlines(filename)))))
    except SyntaxError:
        return ()


def _names(node: ast.AST) -> tuple[str, ...]:
    """The plain names that a statement unpacks into; none when one of them is anything else."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    names = tuple(part.id for part in parts if isinstance(part, ast.Name))
    return names if len(names) == len(parts) else ()


def _target(node: ast.AST) -> ast.Name | None:
    """The one plain name that a statement binds."""
    if isinstance(node, ast.Assign):
        target = node.targets[0] if len(node.targets) == 1 else None
    else:
        target = getattr(node, "target", None) if isinstance(node, _BINDING) else None
    return target if isinstance(target, ast.Name) else None


_BINDING = (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)


def _span(filename: str, node: ast.AST) -> Span:
    assert isinstance(node, ast.expr | ast.stmt)
    return Span(
        filename, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0
    )
