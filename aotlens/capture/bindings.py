"""Which expression of a file gives each local variable its value, from the file's text."""

import ast
import linecache
from functools import lru_cache

from aotlens.report.records import Span


@lru_cache(maxsize=64)
def bound_expressions(filename: str) -> dict[Span, str]:
    """By the span of the expression: the name that it is assigned to; empty when the file does not parse.

    `x += y` computes at the whole statement.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}
    found = {}
    for node in ast.walk(tree):
        target, value = _target(node), getattr(node, "value", None)
        if target is not None and value is not None:
            found[_span(filename, node if isinstance(node, ast.AugAssign) else value)] = target.id
    return found


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
