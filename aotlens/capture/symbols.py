"""Symbolic sizes as nodes.

Invariant: every symbol has one defining node (a size of an input, or a number that is an input), and an
expression over symbols is computed once.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.errors import UnsupportedError
from aotlens.ir.program import Node
from aotlens.ir.sizes import SymbolicExpression

AddNode = Callable[..., Node]


class Symbols:
    """The nodes of a recording's symbolic numbers."""

    def __init__(self, add_node: AddNode) -> None:
        self._add_node = add_node
        self._by_expression: dict[Any, Node] = {}
        self._sources: dict[Any, Callable[[], Node]] = {}

    def define(self, value: Any, node: Node) -> None:
        """Say which node gives a symbolic number."""
        self._by_expression.setdefault(value.node.expr, node)

    def define_sizes(self, node: Node) -> None:
        """Take the symbols among an input tensor's sizes and strides from that input."""
        for dim, size in enumerate(node.val.shape):
            self._source(size, torch.ops.aten.sym_size.int, node, dim)
        for dim, stride in enumerate(node.val.stride()):
            self._source(stride, torch.ops.aten.sym_stride.int, node, dim)

    def _source(self, value: Any, op: Any, node: Node, dim: int) -> None:
        if isinstance(value, torch.SymInt) and value.node.expr.is_symbol:
            make = lambda: self._add_node(op, (node, dim), {}, value)
            self._sources.setdefault(value.node.expr, make)

    def value(self, number: Any) -> Any:
        """The node of a symbolic number, or the number itself when it is known."""
        expression = number.node.expr
        if expression.is_number:
            return int(expression) if isinstance(number, torch.SymInt) else number.node.hint
        known = self._by_expression.get(expression)
        if known is not None:
            return known
        if expression in self._sources:
            node = self._sources[expression]()
        else:
            symbols = tuple(sorted(expression.free_symbols, key=str))
            arguments = tuple(self._symbol(symbol) for symbol in symbols)
            node = self._add_node(SymbolicExpression(expression, symbols), arguments, {}, number)
        self._by_expression[expression] = node
        return node

    def _symbol(self, symbol: Any) -> Node:
        known = self._by_expression.get(symbol)
        if known is None:
            if symbol not in self._sources:
                raise UnsupportedError(f"the size `{symbol}`, which no input carries")
            known = self._by_expression[symbol] = self._sources[symbol]()
        return known
