"""The set of numbers that a value can hold, where there are at most two: masks of any dtype.

Invariant: the set covers every element, provided that the operands are finite; None means that the set is
unknown or has more than two numbers.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.ir.program import Node, getitem, op_name
from aotlens.partition.storages import is_view

Numbers = frozenset[float] | None
BOTH: frozenset[float] = frozenset({0.0, 1.0})


@cache
def packet_name(op: Any) -> str:
    """Return an operator's name without its overload: `aten.mul`."""
    return ".".join(op_name(op).split(".")[:2])


class ValueRanges:
    """Follows casts, scaling, masking and views; results are memoised by node."""

    def __init__(self) -> None:
        self._known: dict[int, Numbers] = {}

    def range_of(self, node: Any) -> Numbers:
        """Return the numbers that a node's value can hold; a Python number is its own set."""
        if isinstance(node, (bool, int, float)):
            return frozenset({float(node)})
        if type(node) is not Node:
            return None
        if id(node) not in self._known:
            self._known[id(node)] = None  # until it is known; a program has no cycles that would read this
            numbers = self._compute(node)
            self._known[id(node)] = numbers if numbers is None or len(numbers) <= 2 else None
        return self._known[id(node)]

    def _compute(self, node: Node) -> Numbers:
        if isinstance(node.val, torch.Tensor) and node.val.dtype is torch.bool:
            return BOTH
        if node.op is getitem or not node.args:
            return None
        known = RULES.get(packet_name(node.op))
        if known is not None:
            return known(self, node)
        return self.range_of(node.args[0]) if is_view(node) else None

    def union(self, left: Any, right: Any) -> Numbers:
        first, second = self.range_of(left), self.range_of(right)
        return None if first is None or second is None else first | second

    def combined(self, node: Node, combine: Callable[[float, float], float]) -> Numbers:
        first, second = self.range_of(node.args[0]), self.range_of(node.args[1])
        if first is None or second is None or node.kwargs.get("alpha", 1) != 1:
            return None
        return frozenset(combine(a, b) for a in first for b in second)


def _same(ranges: ValueRanges, node: Node) -> Numbers:
    return ranges.range_of(node.args[0])


def _product(ranges: ValueRanges, node: Node) -> Numbers:
    if frozenset({0.0}) in (ranges.range_of(node.args[0]), ranges.range_of(node.args[1])):
        return frozenset({0.0})
    return ranges.combined(node, lambda a, b: a * b)


def _power(ranges: ValueRanges, node: Node) -> Numbers:
    return frozenset({1.0}) if ranges.range_of(node.args[1]) == frozenset({0.0}) else None


def _quotient(ranges: ValueRanges, node: Node) -> Numbers:
    divisors = ranges.range_of(node.args[1])
    return ranges.combined(node, lambda a, b: a / b) if divisors and 0.0 not in divisors else None


def _random_integers(ranges: ValueRanges, node: Node) -> Numbers:
    low, high = (0, node.args[0]) if node.op is aten.randint.default else node.args[:2]
    return BOTH if (low, high) == (0, 2) else None


def _or_zero(ranges: ValueRanges, node: Node) -> Numbers:
    return ranges.union(node.args[0], 0)


RULES: dict[str, Callable[[ValueRanges, Node], Numbers]] = {
    "aten._to_copy": _same,
    "prims.convert_element_type": _same,
    "aten.clone": _same,
    "aten.bernoulli": lambda ranges, node: BOTH,
    "aten.randint": _random_integers,
    "aten.mul": _product,
    "aten.pow": _power,
    "aten.add": lambda ranges, node: ranges.combined(node, lambda a, b: a + b),
    "aten.sub": lambda ranges, node: ranges.combined(node, lambda a, b: a - b),
    "aten.rsub": lambda ranges, node: ranges.combined(node, lambda a, b: b - a),
    "aten.div": _quotient,
    "aten.tril": _or_zero,
    "aten.triu": _or_zero,
    "aten.where": lambda ranges, node: ranges.union(node.args[1], node.args[2]),
    "aten.masked_fill": lambda ranges, node: ranges.union(node.args[0], node.args[2]),
    "aten.scatter": lambda ranges, node: ranges.union(node.args[0], node.args[3]),
    "aten.zeros": lambda ranges, node: frozenset({0.0}),
    "aten.zeros_like": lambda ranges, node: frozenset({0.0}),
    "aten.new_zeros": lambda ranges, node: frozenset({0.0}),
    "aten.ones": lambda ranges, node: frozenset({1.0}),
    "aten.ones_like": lambda ranges, node: frozenset({1.0}),
    "aten.full": lambda ranges, node: ranges.range_of(node.args[1]),
    "aten.full_like": lambda ranges, node: ranges.range_of(node.args[1]),
    "aten.scalar_tensor": _same,
}
"""By operator, how the set of the result follows from those of the operands."""
