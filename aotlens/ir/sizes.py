"""Expressions over symbolic sizes, as operators of a program and as Python text."""

from dataclasses import dataclass
from typing import Any

import torch

from aotlens.torch_api.symbolic import print_expression


def is_ragged(size: Any) -> bool:
    """Whether a size is a nested int of a jagged tensor: it stands for many sizes, and has no expression."""
    return isinstance(size, torch.SymInt) and not size.node.is_symbolic()


def is_symbol(size: Any) -> bool:
    """Whether it is a number that the compilation does not know."""
    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool)
    return isinstance(size, kinds) and size.node.is_symbolic() and not size.node.expr.is_number


def is_of_data(size: Any) -> bool:
    """Whether it is a symbol for a number that only the data tells."""
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
        """The expression as Python text over the arguments' names."""
        names = dict(zip((str(symbol) for symbol in self.symbols), arguments, strict=True))
        return print_expression(self.expression, names)

    def __str__(self) -> str:
        return str(self.expression)
