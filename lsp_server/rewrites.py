"""Edits that the user may want where there is no finding.

Invariant: built from a text alone, away from the server's loop; positions are those of that text, in the
report's units.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from aotlens.model.report import Edit, Fix, Span
from lsp_server.text.parsing import parse
from lsp_server.text.positions import width

NO_GRAD = re.compile(r"\b(?:no_grad|inference_mode|set_grad_enabled)\b")
"""A file is parsed only if the line contains one of these."""


def grad_restored(lines: Sequence[str], file: str, line: int) -> Fix | None:
    """Return the block or function whose `torch.no_grad()` is on line `line` (0-based), without it."""
    if not (0 <= line < len(lines) and NO_GRAD.search(lines[line])):
        return None
    tree = parse("\n".join(lines))
    if tree is None:
        return None
    for node in ast.walk(tree):
        edits: list[Edit] = []
        if isinstance(node, ast.With):
            edits = list(_without_item(node, lines, file, line + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            edits = list(_without_decorator(node, lines, file, line + 1))
        if edits:
            return Fix("Remove no_grad: let autograd record this", tuple(edits))
    return None


def _is_no_grad(node: ast.expr) -> bool:
    call = node if isinstance(node, ast.Call) else None
    function = call.func if call else node
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name == "set_grad_enabled":
        return call is not None and [ast.unparse(argument) for argument in call.args] == ["False"]
    return name in ("no_grad", "inference_mode")


def _without_decorator(
    node: ast.FunctionDef | ast.AsyncFunctionDef, lines: Sequence[str], file: str, line: int
) -> Iterator[Edit]:
    for decorator in node.decorator_list:
        if decorator.lineno == line == decorator.end_lineno and _is_no_grad(decorator):
            yield Edit(Span(file, line, 0, line + 1, 0), "")


def _without_item(node: ast.With, lines: Sequence[str], file: str, line: int) -> Iterator[Edit]:
    item = next((candidate for candidate in node.items if _is_no_grad(candidate.context_expr)), None)
    if item is None or item.context_expr.lineno != line or item.optional_vars is not None:
        return
    if len(node.items) > 1:
        yield _without_one_of(node.items, item, file)
        return
    first = node.body[0]
    if first.lineno == node.lineno:  # `with torch.no_grad(): x.add_(1)`
        yield Edit(Span(file, node.lineno, node.col_offset, first.lineno, first.col_offset), "")
        return
    yield Edit(Span(file, node.lineno, 0, _body_start(node, lines), 0), "")
    yield from _dedented(node, lines, file, first.col_offset - node.col_offset)


def _without_one_of(items: list[ast.withitem], item: ast.withitem, file: str) -> Edit:
    """Return the deletion of one of several items: with the comma after it, or before it for the last."""
    for left, right in pairwise(items):
        current, following = left.context_expr, right.context_expr
        if left is item:
            return Edit(
                Span(file, current.lineno, current.col_offset, following.lineno, following.col_offset), ""
            )
        if right is item and right is items[-1]:
            before = left.optional_vars or current
            end = before.end_lineno or before.lineno, before.end_col_offset or 0
            until = following.end_lineno or following.lineno, following.end_col_offset or 0
            return Edit(Span(file, *end, *until), "")
    raise AssertionError("one of the items")


def _body_start(node: ast.With, lines: Sequence[str]) -> int:
    """Return the line of the body's first statement, or of the comments directly above it."""
    line = node.body[0].lineno
    head = node.items[-1].context_expr.end_lineno or node.lineno
    while line - 1 > head and lines[line - 2].lstrip().startswith("#"):
        line -= 1
    return line


def _dedented(node: ast.With, lines: Sequence[str], file: str, by: int) -> Iterator[Edit]:
    """Yield the edits that dedent by one level; text inside strings of several lines is unchanged."""
    strings = (string for string in ast.walk(node) if isinstance(string, ast.Constant | ast.JoinedStr))
    inside = {line for string in strings for line in range(string.lineno + 1, (string.end_lineno or 0) + 1)}
    for line in range(_body_start(node, lines), (node.end_lineno or node.lineno) + 1):
        text = lines[line - 1]
        blank = len(text) - len(text.lstrip())
        if text.strip() and line not in inside:
            yield Edit(Span(file, line, 0, line, min(by, width(text[:blank], "utf-8"))), "")
