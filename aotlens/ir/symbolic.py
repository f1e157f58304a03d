"""Size expressions as graph nodes, one operator each, as backends expect them."""

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import fx

from aotlens.errors import UnsupportedError
from aotlens.ir.sizes import SymbolicExpression
from aotlens.torch_api.operators import SYMBOLIC_FUNCTIONS


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
    if name == "Piecewise":
        return _build_choice(graph, expression.args, symbols)
    if name not in OPERATORS:
        raise UnsupportedError(f"the size expression `{expression}` in a graph for a backend")
    arguments = [_build(graph, argument, symbols) for argument in expression.args]
    function = OPERATORS[name]
    if len(arguments) == 1:
        return _call(graph, function, arguments[0])
    return reduce(lambda left, right: _call(graph, function, left, right), arguments)


def _build_choice(graph: fx.Graph, pieces: Any, symbols: dict[Any, Any]) -> Any:
    """The first value whose condition holds; the last condition always does."""
    (value, condition), *rest = pieces
    chosen = _build(graph, value, symbols)
    if not rest:
        return chosen
    otherwise = _build_choice(graph, rest, symbols)
    return _call(graph, torch.sym_ite, _build(graph, condition, symbols), chosen, otherwise)


def _call(graph: fx.Graph, function: Callable[..., Any], *operands: Any) -> Any:
    node = graph.call_function(function, operands)
    values = [operand.meta["val"] if isinstance(operand, fx.Node) else operand for operand in operands]
    node.meta["val"] = function(*values)
    return node


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "FloatPow": operator.pow,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
    "ToFloat": torch.sym_float,
    "TruncToInt": math.trunc,
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "LessThan": operator.le,
    "StrictLessThan": operator.lt,
    "GreaterThan": operator.ge,
    "StrictGreaterThan": operator.gt,
    "And": operator.and_,
    "Or": operator.or_,
    "Not": torch.sym_not,
    **{f"OpaqueUnaryFn_{name}": function for name, function in SYMBOLIC_FUNCTIONS.items()},
}
"""By sympy class: the function that computes it, from two operands or from one."""
