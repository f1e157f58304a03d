"""Symbolic sizes: expressions as operators and as FX nodes, and the nodes that introduce unbacked SymInts."""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import fx

from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.operators import SYMBOLIC_FUNCTIONS
from aotlens.torch_api.symbolic import paths_to_symbols, print_expression, unbacked_symbols
from aotlens.unsupported import unsupported


def is_ragged(size: Any) -> bool:
    """Return True if a size is a nested int of a jagged tensor: many sizes at once, with no expression."""
    return isinstance(size, torch.SymInt) and not size.node.is_symbolic()


def is_symbol(size: Any) -> bool:
    """Return True if a number is symbolic and not constant."""
    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool)
    return isinstance(size, kinds) and size.node.is_symbolic() and not size.node.expr.is_number


def is_data_dependent(size: Any) -> bool:
    """Return True if a size is an unbacked SymInt."""
    return isinstance(size, torch.SymInt) and not size.node.has_hint()


@dataclass(frozen=True, slots=True)
class SymbolicExpression:
    """An operator that computes a number from other numbers: `2*s0 + 1`."""

    expression: Any
    """A sympy expression."""
    symbols: tuple[Any, ...]
    """Its free symbols, in argument order."""

    @property
    def __name__(self) -> str:
        return "size"

    def text(self, arguments: tuple[str, ...]) -> str:
        """Return the expression as Python text over the arguments' names."""
        names = dict(zip((str(symbol) for symbol in self.symbols), arguments, strict=True))
        return print_expression(self.expression, names)

    def __str__(self) -> str:
        return str(self.expression)


def expression_nodes(graph: fx.Graph, op: SymbolicExpression, arguments: list[fx.Node], val: Any) -> fx.Node:
    """Add the nodes that compute a size expression from its symbols' nodes; return the last one."""
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
        raise unsupported("size-expression", expression=expression)
    arguments = [_build(graph, argument, symbols) for argument in expression.args]
    function = OPERATORS[name]
    if len(arguments) == 1:
        return _call(graph, function, arguments[0])
    return reduce(lambda left, right: _call(graph, function, left, right), arguments)


def _build_choice(graph: fx.Graph, pieces: Any, symbols: dict[Any, Any]) -> Any:
    """Return the first value whose condition holds; the last condition always does."""
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
"""By sympy class: the function that computes it, with one or two operands."""


def bind_unbacked_symbols(graph: fx.Graph) -> None:
    """Add the bindings; for a graph with known sizes this only looks at its first tensor."""
    environment = _environment(graph)
    pending = unbacked_symbols(environment) if environment is not None else set()
    for node in graph.nodes:
        if not pending:
            return
        val = node.meta.get("val")
        if node.op in ("placeholder", "get_attr"):
            pending -= symbols_of(val)
        elif val is not None and (paths := paths_to_symbols(val, environment, pending)):
            node.meta["unbacked_bindings"] = paths


def _environment(graph: fx.Graph) -> Any:
    """Return the ShapeEnv of the graph's values; None if all sizes are known."""
    for node in graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, FakeTensor):
            return val.fake_mode.shape_env
        if isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return val.node.shape_env
    return None


def symbolic_numbers_of(val: Any) -> list[Any]:
    """Return the symbolic numbers in a value: itself, or a tensor's sizes, strides and offset."""
    if isinstance(val, (list, tuple)):
        return [number for item in val for number in symbolic_numbers_of(item)]
    numbers: tuple[Any, ...] = (val,)
    if isinstance(val, FakeTensor):
        has_strides = val.layout is torch.strided
        numbers = (*val.shape, *val.stride(), val.storage_offset()) if has_strides else tuple(val.shape)
    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool)
    return [each for each in numbers if isinstance(each, kinds) and each.node.is_symbolic()]


def symbols_of(val: Any) -> set[Any]:
    """Return the symbols in a value's numbers."""
    return {symbol for number in symbolic_numbers_of(val) for symbol in number.node.expr.free_symbols}
