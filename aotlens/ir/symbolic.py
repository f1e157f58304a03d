"""Size expressions as graph nodes, one operator each, as backends expect them."""

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

from torch import fx

from aotlens.errors import UnsupportedError
from aotlens.ir.sizes import SymbolicExpression


def expression_nodes(graph: fx.Graph, op: SymbolicExpression, arguments: list[fx.Node], val: Any) -> fx.Node:
    """Add the nodes that compute a size expression from its symbols' nodes; the last one is the result."""
    symbols = dict(zip(op.symbols, arguments, strict=True))
    result = _build(graph, op.expression, symbols)
    result.meta["val"] = val
    return result


def _build(graph: fx.Graph, expression: Any, symbols: dict[Any, Any]) -> Any:
    if expression in symbols:
        return symbols[expression]
    if expression.is_number:
        return int(expression) if expression.is_integer else float(expression)
    name = type(expression).__name__
    if name not in OPERATORS:
        raise UnsupportedError(f"the size expression `{expression}` in a graph for a backend")
    arguments = [_build(graph, argument, symbols) for argument in expression.args]
    function = OPERATORS[name]
    return reduce(lambda left, right: _call(graph, function, left, right), arguments)


def _call(graph: fx.Graph, function: Callable[..., Any], left: Any, right: Any) -> Any:
    node = graph.call_function(function, (left, right))
    values = [side.meta["val"] if isinstance(side, fx.Node) else side for side in (left, right)]
    node.meta["val"] = function(*values)
    return node


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": max,
    "Min": min,
}
"""By sympy class: the Python function that computes it from two operands."""
