"""Find the expression of a source line that an operator comes from: logs have lines, but no columns.

Invariant: pure functions over text.  If two expressions of the line are possible, the answer is None, and the
whole line is shown: a column is never guessed.

| the line | the operator | the expression |
|---|---|---|
| `x = x + self.attention(self.norm1(x))` | `add` | the whole sum |
| the same | `layer_norm` of layer `norm1` | `self.norm1(x)` |
| the same | `layer_norm` of an unknown layer | None: two modules are called |
| `return (x * s) * y` | `mul` | None: two products |
"""

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from aotlens.trace.source.operator_forms import (
    BINARY,
    COMPARISONS,
    GENERIC,
    GRADIENT_OF,
    IN_PLACE,
    PARTS_OF,
    SUBSCRIPTS,
    UNARY,
    WRITTEN,
)

__all__ = ["Columns", "base_name", "columns_of", "forward_name", "widest_from"]

MAX_CODE = 2_000
"""Characters of a line that are parsed: a hostile log may hold any text."""
_BACKWARD = re.compile(r"_backward(?:_data)?\d?$")


@dataclass(frozen=True, slots=True)
class Columns:
    """The position of an expression in its line, in UTF-8 bytes; the end is exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Expression:
    columns: Columns
    operators: frozenset[str]
    """Operators that it may run directly, by base names; unknown for an unknown call."""
    called: str = ""
    """The last name of the called object: `norm1` for `self.norm1(x)`; empty for other expressions."""

    @property
    def is_opaque(self) -> bool:
        """Return True if it calls code that is not visible here, such as a module's `forward`."""
        return bool(self.called) and not self.operators


def columns_of(code: str, operator: str, layer: str = "", *, is_written: bool = True) -> Columns | None:
    """Return the only expression of the line that can run the operator; None if none or several can.

    `operator` is a name in any of torch's forms (`aten.add.Tensor`, `torch._C._nn.linear`), `layer` the name
    of the module whose parameter it reads (`blocks.0.norm1`).  `is_written` means that the user called the
    operator itself; otherwise it may be a part of another one, as an `add` of a decomposed `layer_norm`.
    """
    name = forward_name(operator)
    expressions = _expressions(code[:MAX_CODE])
    opaque = [entry for entry in expressions if entry.is_opaque]
    if layer and (of_layer := [entry for entry in opaque if entry.called == layer.rpartition(".")[2]]):
        return _only(of_layer, code)
    itself = [entry for entry in expressions if name in entry.operators]
    whole = [entry for entry in expressions if entry.operators & PARTS_OF.get(name, frozenset())]
    if name in SUBSCRIPTS and not itself:  # unpacking a result runs these, and is no expression
        return None
    if is_written and not name.startswith("_"):
        return _only(itself or whole or opaque, code)
    if name in GENERIC:
        return _only(expressions, code)
    return _only(list(dict.fromkeys((*itself, *whole, *opaque))), code)


def widest_from(code: str, start: int) -> Columns | None:
    """Return the widest expression of the line that begins at that byte; None if none does."""
    width = len(code.encode())
    ends = [
        entry.columns
        for entry in _expressions(code[:MAX_CODE])
        if entry.columns.start == start and entry.columns.end <= width
    ]
    return max(ends, key=lambda columns: columns.end, default=None)


def base_name(operator: str) -> str:
    """Return the operator's name without namespaces, overload and trailing underscore."""
    path = operator.partition("[")[0].removeprefix("torch.ops.").split(".")
    is_overload = len(path) > 2 and not operator.startswith("torch.")
    name = path[-2] if is_overload or operator.startswith("torch.ops.") else path[-1]
    return name.rstrip("_") or name


def forward_name(operator: str) -> str:
    """Return the base name of the operator whose gradient the operator computes, or of itself."""
    name = base_name(operator)
    forward = _BACKWARD.sub("", name)
    return GRADIENT_OF.get(name, forward)


def _only(expressions: Sequence[_Expression], code: str) -> Columns | None:
    """Return the columns of the only expression; None if there is none or several, so nothing is guessed."""
    if len(expressions) != 1 or expressions[0].columns.end > len(code.encode()):
        return None  # several, none, or one that ends on a later line
    return expressions[0].columns


@lru_cache(maxsize=4096)
def _expressions(code: str) -> tuple[_Expression, ...]:
    """Return every expression of the line that runs something; empty for an incomplete statement."""
    tree = _parsed(code.strip())
    if tree is None:
        return ()
    shift = len((code[: len(code) - len(code.lstrip())]).encode())
    return tuple(_running(tree, shift))


def _parsed(code: str) -> ast.AST | None:
    """Return the tree of a line: a statement, the head of a block, or the beginning of a longer call."""
    for text in (code, f"{code} pass", f"if True: pass\n{code} pass", f"{code}{_closing(code)}"):
        try:
            with warnings.catch_warnings(action="ignore"):  # about the user's line, as `x is 1`
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        # An `elif` or `else` is on the second line of what was parsed, so it would have other positions.
        return tree if not text.startswith("if True: pass\n") else None
    return None


def _closing(code: str) -> str:
    """Return the closing brackets that the line lacks; a guess that the parser then checks."""
    pairs, still_open = {"(": ")", "[": "]", "{": "}"}, ""
    for character in code:
        if character in pairs:
            still_open = pairs[character] + still_open
        elif still_open.startswith(character):
            still_open = still_open[1:]
    return still_open


def _running(tree: ast.AST, shift: int) -> Iterator[_Expression]:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.expr, ast.AugAssign)) or node.lineno != 1 or node.end_lineno != 1:
            continue
        columns = Columns(node.col_offset + shift, (node.end_col_offset or 0) + shift)
        if isinstance(node, ast.Call):
            called = _last_name(node.func)
            yield _Expression(columns, _operators_called(called), called or "call")
        elif operators := _operators(node):
            yield _Expression(columns, operators)


def _operators_called(called: str) -> frozenset[str]:
    """Return the operators that a call of that name runs, if it is a function of torch."""
    name = called.rstrip("_")
    return frozenset({name}) if name in WRITTEN else frozenset()


def _operators(node: ast.AST) -> frozenset[str]:
    match node:
        case ast.BinOp(op=operation):
            return BINARY.get(type(operation).__name__, frozenset())
        case ast.AugAssign(op=operation):
            return IN_PLACE.get(type(operation).__name__, frozenset())
        case ast.UnaryOp(op=operation):
            return UNARY.get(type(operation).__name__, frozenset())
        case ast.Compare(ops=[operation]):
            return COMPARISONS.get(type(operation).__name__, frozenset())
        case ast.Subscript():
            return SUBSCRIPTS
        case ast.Attribute(attr="T" | "mT" | "H" | "mH"):
            return frozenset({"t", "permute", "transpose", "numpy_T", "mT"})
    return frozenset()


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
