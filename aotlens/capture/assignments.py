"""Local variables of a graph that Dynamo captured: found by the exact span of the assigned expression.

Invariant: a node of Dynamo's graph is one call of the user's, so a node whose span is the whole right-hand
side of an assignment is the value that the name is bound to.
"""

import ast
import linecache
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from aotlens.build.describe import describe_tensor
from aotlens.model.report import Span, Variable


@dataclass(frozen=True, slots=True)
class Name:
    """A variable in an assignment."""

    text: str
    span: Span


Names = Name | tuple[Name, ...]
"""One name takes the whole value, several in a row take it apart."""


def variables_of_nodes(
    gm: fx.GraphModule, spans: Callable[[fx.Node], tuple[Span, ...]]
) -> tuple[Variable, ...]:
    """The variables that the graph's nodes are assigned to, in source order."""
    by_file: dict[str, dict[Span, Names]] = {}
    found: dict[Span, Variable] = {}
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if not isinstance(value, (torch.Tensor, tuple, list)):
            continue
        for span in spans(node):
            known = by_file.get(span.file)
            if known is None:
                known = by_file[span.file] = assigned_expressions(span.file)
            found |= _bound(known.get(span), value)
    return tuple(sorted(found.values(), key=lambda variable: (variable.span.line, variable.span.col)))


def _bound(names: Names | None, value: Any) -> dict[Span, Variable]:
    """The variables that names become, by their places."""
    if names is None:
        return {}
    if isinstance(names, Name):
        names, value = (names,), (value,)
    if not isinstance(value, (tuple, list)) or len(names) != len(value):
        return {}
    pairs = [pair for pair in zip(names, value, strict=True) if isinstance(pair[1], torch.Tensor)]
    return {name.span: Variable(name.span, name.text, describe_tensor(one)) for name, one in pairs}


def assigned_expressions(filename: str) -> dict[Span, Names]:
    """By span of a right-hand side: what it is assigned to, where that is a name or several in a row."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}
    found: dict[Span, Names] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            names = _names(filename, node.targets[0])
            if names is not None:
                found[_span(filename, node.value)] = names
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found[_span(filename, node)] = Name(node.target.id, _span(filename, node.target))
    return found


def _names(filename: str, target: ast.expr) -> Names | None:
    match target:
        case ast.Name(id=text):
            return Name(text, _span(filename, target))
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            names = [Name(one.id, _span(filename, one)) for one in parts if isinstance(one, ast.Name)]
            return tuple(names) if len(names) == len(parts) else None
    return None


def _span(filename: str, node: Any) -> Span:
    return Span(filename, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
