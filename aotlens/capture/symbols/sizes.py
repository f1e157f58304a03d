"""Symbolic sizes as nodes.

Invariant: every symbol has one defining node (a size of an input, a number that is an input, or a data-
dependent value), and an expression over symbols is computed once.
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
        """Returns the user's current expression, for errors."""
        self._by_expression: dict[Any, Node] = {}
        self._sources: dict[Any, Callable[[], Node]] = {}
        self.lift_symbol: Callable[[Any], Node] | None = None
        """In a subgraph: turns a symbol of the outer recording into an input."""
        self.read_from_data: set[Any] = set()
        """Symbols of data-dependent numbers: `item()`, the row count of `nonzero()`."""

    def define(self, value: Any, node: Node) -> None:
        """Set the node of a symbolic number."""
        self._by_expression.setdefault(value.node.expr, node)

    def define_sizes(self, node: Node, counterpart: Any = None) -> None:
        """Define the symbols in a tensor's sizes, strides and storage offset by the tensor's node.

        `counterpart` is the same tensor in another recording; its symbols are defined instead.
        """
        tensor = node.val if counterpart is None else counterpart
        for dim, size in enumerate(tensor.shape):
            self._source(size, aten.sym_size.int, node, dim)
        for dim, stride in enumerate(tensor.stride()):
            self._source(stride, aten.sym_stride.int, node, dim)
        self._source(tensor.storage_offset(), aten.sym_storage_offset.default, node)

    def define_data(self, node: Node, item: Callable[[Node, int], Node], symbols: set[Any]) -> None:
        """Define the new symbols of an operator's result: a number itself, or the sizes of a tensor."""
        self.read_from_data |= symbols
        for index, value in enumerate(node.results):
            source = node if value is node.val else None
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                self.define(value, source or item(node, index))
            elif isinstance(value, torch.Tensor):
                self.define_sizes(source or item(node, index))

    def data_symbols(self, values: Iterable[Any]) -> list[Any]:
        """Return the data-dependent symbols in these values, sorted."""
        return sorted(_free_symbols(values) & self.read_from_data, key=str)

    def of_expression(self, expression: Any, value: Any) -> Node:
        """Return the node that computes an expression over symbols."""
        symbols = tuple(sorted(expression.free_symbols, key=str))
        arguments = tuple(self.of_symbol(symbol) for symbol in symbols)
        return self._add_node(SymbolicExpression(expression, symbols), arguments, {}, value)

    def _source(self, value: Any, op: Any, *args: Any) -> None:
        if isinstance(value, torch.SymInt) and not is_ragged(value):
            expression = original_expression(value)
            if expression.is_symbol:
                make = lambda: self._add_node(op, args, {}, value)
                self._sources.setdefault(expression, make)

    def value(self, number: Any) -> Any:
        """Return the node of a symbolic number, or the number itself if it is known.

        Raises:
            UnsupportedError: it is the ragged size of a jagged tensor, which no input has as a number.
        """
        if is_ragged(number):
            raise unsupported("unknown-size", self._where(), symbol=number)
        expression = number.node.expr
        if expression.is_number:
            return int(expression) if isinstance(number, torch.SymInt) else number.node.hint
        known = self._by_expression.get(expression)
        if known is not None:
            return known
        make = self._sources.get(expression)
        node = make() if make is not None else self.of_expression(expression, number)
        self._by_expression[expression] = node
        return node

    def of_symbol(self, symbol: Any) -> Node:
        """Return the node of one symbol."""
        known = self._by_expression.get(symbol)
        if known is not None:
            return known
        if symbol in self._sources:
            node = self._sources[symbol]()
        elif self.lift_symbol is not None:
            node = self.lift_symbol(symbol)
        else:
            raise unsupported("unknown-size", self._where(), symbol=symbol)
        self._by_expression[symbol] = node
        return node


def _free_symbols(values: Iterable[Any]) -> set[Any]:
    """Return the symbols in numbers, including nested lists."""
    symbols: set[Any] = set()
    for value in values:
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            symbols |= value.node.expr.free_symbols
        elif isinstance(value, (list, tuple)):
            symbols |= _free_symbols(value)
    return symbols
