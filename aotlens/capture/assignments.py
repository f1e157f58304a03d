"""Local variables of a graph that Dynamo captured: found by the exact span of the assigned expression.

Invariant: a node of Dynamo's graph is one call of the user's, so a node whose span is the whole right-hand
side of an assignment is the value that the name is bound to.
"""

import ast
import linecache
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aotlens.report.describe import describe_tensor
from aotlens.report.records import Span, Variable


def variables_of_nodes(
    gm: fx.GraphModule, spans: Callable[[fx.Node], tuple[Span, ...]]
) -> tuple[Variable, ...]:
    """The variables that the graph's nodes are assigned to, in source order."""
    by_file: dict[str, dict[Span, tuple[str, Span]]] = {}
    found: dict[Span, Variable] = {}
    for node in gm.graph.nodes:
        val = node.meta.get("example_value")
        if not isinstance(val, torch.Tensor):
            continue
        for span in spans(node):
            values = by_file.get(span.file)
            if values is None:
                values = by_file[span.file] = assigned_expressions(span.file)
            target = values.get(span)
            if target is not None:
                found[target[1]] = Variable(target[1], target[0], describe_tensor(val))
    return tuple(sorted(found.values(), key=lambda variable: (variable.span.line, variable.span.col)))


def assigned_expressions(filename: str) -> dict[Span, tuple[str, Span]]:
    """By span of a right-hand side: the one name that it is assigned to, and the name's span."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}
    found: dict[Span, tuple[str, Span]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            target: Any = node.targets[0]
            found[_span(filename, node.value)] = (target.id, _span(filename, target))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found[_span(filename, node)] = (node.target.id, _span(filename, node.target))
    return found


def _span(filename: str, node: Any) -> Span:
    return Span(filename, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
