"""Symbolic sizes as nodes.

Invariant: every symbol has one defining node (a size of an input, a number that is an input, or what the
program reads out of data), and an expression over symbols is computed once.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from aotlens.ir.program import Node
from aotlens.ir.symbols import SymbolicExpression, is_ragged
from aotlens.model.report import Span
from aotlens.torch_api.symbolic import original_expression
from aotlens.unsupported import unsupported

aten = torch.ops.aten
AddNode = Callable[..., Node]


class Symbols:
    """The nodes of a recording's symbolic numbers."""

    def __init__(self, add_node: AddNode, where: Callable[[], Span | None]) -> None:
        self._add_node = add_node
        self._where = where
        """The user's expression that is recorded now, for errors."""
        self._by_expression: dict[Any, Node] = {}
        self._sources: dict[Any, Callable[[], Node]] = {}
        self.from_outside: Callable[[Any], Node] | None = None
        """Of a function of a higher-order operator: makes the symbol of another recording an input."""
        self.read_from_data: set[Any] = set()
        """Symbols of numbers that only the data tells: `item()`, the rows that `nonzero()` finds."""

    def define(self, value: Any, node: Node) -> None:
        """Say which node gives a symbolic number."""
        self._by_expression.setdefault(value.node.expr, node)

    def define_sizes(self, node: Node, counterpart: Any = None) -> None:
        """Take the symbols among a tensor's sizes, strides and offset from that tensor.

        `twin` is the same tensor in another recording, whose symbols are taken from it instead.
        """
        tensor = node.val if counterpart is None else counterpart
        for dim, size in enumerate(tensor.shape):
            self._source(size, aten.sym_size.int, node, dim)
        for dim, stride in enumerate(tensor.stride()):
            self._source(stride, aten.sym_stride.int, node, dim)
        self._source(tensor.storage_offset(), aten.sym_storage_offset.default, node)

    def define_data(self, node: Node, item: Callable[[Node, int], Node], symbols: set[Any]) -> None:
        """Say that an operator's result brings new symbols: a number itself, or a tensor by its sizes."""
        self.read_from_data |= symbols
        for index, value in enumerate(node.results):
            source = node if value is node.val else None
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                self.define(value, source or item(node, index))
            elif isinstance(value, torch.Tensor):
                self.define_sizes(source or item(node, index))

    def data_symbols(self, values: Iterable[Any]) -> list[Any]:
        """The symbols in these values that only the data tells, in a fixed order."""
        return sorted(_free_symbols(values) & self.read_from_data, key=str)

    def of_symbol(self, symbol: Any) -> Node:
        """The node of one symbol."""
        return self._symbol(symbol)

    def of_expression(self, expression: Any, value: Any) -> Node:
        """The node that computes an expression over symbols."""
        symbols = tuple(sorted(expression.free_symbols, key=str))
        arguments = tuple(self._symbol(symbol) for symbol in symbols)
        return self._add_node(SymbolicExpression(expression, symbols), arguments, {}, value)

    def _source(self, value: Any, op: Any, *args: Any) -> None:
        if isinstance(value, torch.SymInt) and not is_ragged(value):
            expression = original_expression(value)
            if expression.is_symbol:
                make = lambda: self._add_node(op, args, {}, value)
                self._sources.setdefault(expression, make)

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
            node = self.of_expression(expression, number)
        self._by_expression[expression] = node
        return node

    def _symbol(self, symbol: Any) -> Node:
        known = self._by_expression.get(symbol)
        if known is None:
            if symbol not in self._sources and self.from_outside is not None:
                self._by_expression[symbol] = known = self.from_outside(symbol)
                return known
            if symbol not in self._sources:
                raise unsupported("unknown-size", self._where(), symbol=symbol)
            known = self._by_expression[symbol] = self._sources[symbol]()
        return known


def _free_symbols(values: Iterable[Any]) -> set[Any]:
    """The symbols in numbers, also in nested lists."""
    symbols: set[Any] = set()
    for value in values:
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            symbols |= value.node.expr.free_symbols
        elif isinstance(value, (list, tuple)):
            symbols |= _free_symbols(value)
    return symbols
