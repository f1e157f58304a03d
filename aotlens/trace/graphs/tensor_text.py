"""Parse tensors from the types that torch prints: `f32[8, 16][16, 1]cpu`, `Sym(s77 + 1)`.

Invariant: a size with symbols is computed from their logged values; without one of them, bytes are unknown.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from math import prod
from typing import TypeVar

from aotlens.model.report import Tensor

__all__ = ["Hints", "float_value", "size_value", "tensor_of"]

_Number = TypeVar("_Number", int, float)
Hints = Mapping[str, int]
"""Symbols with their values when the code was compiled."""

MAX_NUMBER = 1 << 62
MAX_SIZE_TEXT = 2_000
MAX_EXPONENT = 8
_TYPE = re.compile(r"^([a-z]+(\d+)\w*)\[([^\[\]]*)\](?:\[([^\[\]]*)\])?([a-z][\w:]*)?$")
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: base**exponent if 0 <= exponent <= MAX_EXPONENT else MAX_NUMBER,
}


_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "CleanDiv": operator.floordiv,
    "FloorDiv": operator.floordiv,
    "Max": max,
    "Min": min,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
}
"""The functions in which torch prints sizes."""
_FLOAT_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def tensor_of(type_: str, hints: Hints, requires_grad: bool = False) -> Tensor | None:
    """Return the tensor of a printed type; None for a size, a number, or another form."""
    match = _TYPE.match(type_)
    if match is None:
        return None
    shape = tuple(_dimension(size) for size in _split(match[3]))
    stride = tuple(_dimension(size) for size in _split(match[4] or ""))
    values = [size if isinstance(size, int) else size_value(size, hints) for size in shape]
    known = [size for size in values if size is not None]
    size_bytes = max(1, int(match[2]) // 8) if len(match[2]) < 4 else 1
    total = size_bytes * prod(known) if len(known) == len(values) else None
    device = match[5] or "cpu"
    return Tensor(
        match[1], shape, stride, device, requires_grad, None if total is None else min(total, MAX_NUMBER)
    )


def _split(text: str) -> list[str]:
    """Split sizes at a comma and a blank; a comma within brackets belongs to one size."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _dimension(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text[:200]


def size_value(text: str, hints: Hints) -> int | None:
    """Return the value of a size's expression; None without a symbol's value, or for another form."""
    return _evaluated(text, _value, hints)


def float_value(text: str, numbers: Mapping[str, float]) -> float | None:
    """Return the value of a symbolic float, `zf0`, or of a product or sum with one; None for another form."""
    return _evaluated(text, _float_value, numbers)


def _evaluated(
    text: str,
    value_of: Callable[[ast.expr, Mapping[str, _Number]], _Number | None],
    symbols: Mapping[str, _Number],
) -> _Number | None:
    if len(text) > MAX_SIZE_TEXT:
        return None
    try:
        return value_of(ast.parse(text.strip(), mode="eval").body, symbols)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ArithmeticError):
        return None


def _float_value(tree: ast.expr, numbers: Mapping[str, float]) -> float | None:
    match tree:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return numbers.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _float_value(operand, numbers)
            return None if value is None else -value
        case ast.BinOp(left=left, op=operation, right=right):
            function = _FLOAT_OPERATIONS.get(type(operation))
            return _applied(function, _float_value(left, numbers), _float_value(right, numbers))
    return None


def _value(tree: ast.expr, hints: Hints) -> int | None:
    match tree:
        case ast.Constant(value=int(number)):
            return number if abs(number) < MAX_NUMBER else None
        case ast.Name(id=name):
            return hints.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand, hints)
            return None if value is None else -value
        case ast.BinOp(left=left, op=operation, right=right):
            function = _OPERATIONS.get(type(operation))
            result = _applied(function, _value(left, hints), _value(right, hints))
            return result if result is not None and abs(result) < MAX_NUMBER else None
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]):
            return _applied(_FUNCTIONS.get(name), _value(left, hints), _value(right, hints))
    return None


def _applied(
    function: Callable[[_Number, _Number], _Number] | None, first: _Number | None, second: _Number | None
) -> _Number | None:
    """Return the function's value; None if one of its arguments has none."""
    return None if function is None or first is None or second is None else function(first, second)
