"""Check the functions of a logged kernel against the Triton subset.

Invariant: a function passes only if every statement, expression and name in it is listed here or in `subset`.
The text is only parsed: nothing is imported, looked up or called.
"""

import ast
from collections.abc import Iterator

from aotlens.errors import UserError
from aotlens.trace.gpu.subset import BUILTINS, INSTRUCTION, MODULES, TENSOR_ATTRIBUTES

__all__ = ["check_function", "constant_value", "dotted", "unsupported"]

MAX_INT_BITS = 64
MAX_STRING = 200
_ROOTS = frozenset(path.partition(".")[0] for path in MODULES)
_OPERATORS = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.LShift,
    ast.RShift,
)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot)
_MACHINE_CODE = "tl.inline_asm_elementwise"
_LOOPS = frozenset({"range", "tl.range", "tl.static_range"})


def unsupported(node: ast.AST, what: str) -> UserError:
    """Return the error for a construct outside of the subset, with its line in the kernel's text."""
    return UserError(f"line {getattr(node, 'lineno', '?')} of the kernel: {what} is not in the Triton subset")


def dotted(node: ast.expr) -> str:
    """Return `tl.math.exp` for such an attribute; empty for one of a computed value."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            owner = dotted(value)
            return f"{owner}.{name}" if owner else ""
    return ""


def check_function(function: ast.FunctionDef, globals_: frozenset[str]) -> None:
    """Raise UserError for a construct outside of the subset.

    `globals_` are the text's other functions and constants.
    """
    _check_signature(function)
    arguments = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args)}
    names = arguments | {argument.arg for argument in function.args.kwonlyargs}
    names |= set(_assigned_names(function))
    for name in names:
        if name in _ROOTS or name in BUILTINS or name.startswith("__"):
            raise unsupported(function, f"the variable `{name}`")
    _Body(frozenset(names) | globals_).check(function.body)


def _check_signature(function: ast.FunctionDef) -> None:
    parameters = function.args
    if parameters.vararg is not None or parameters.kwarg is not None:
        raise unsupported(function, "a function with * or ** arguments")
    for argument in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
        if argument.annotation is not None and not _is_constexpr(argument.annotation):
            raise unsupported(argument, f"the annotation `{ast.unparse(argument.annotation)}`")
    for default in (*parameters.defaults, *parameters.kw_defaults):
        if default is not None:
            constant_value(default)


def _is_constexpr(annotation: ast.expr) -> bool:
    return dotted(annotation) == "tl.constexpr" or (
        isinstance(annotation, ast.Constant) and annotation.value in ("tl.constexpr", "constexpr")
    )


def _assigned_names(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def constant_value(node: ast.expr) -> object:
    """Return a number, string, bool or None; raises UserError for anything else."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Constant(value=int() as number) if number.bit_length() <= MAX_INT_BITS:
            return number
        case ast.Constant(value=float() | None as value):
            return value
        case ast.Constant(value=str() as text) if len(text) <= MAX_STRING:
            return text
    raise unsupported(node, f"the constant `{ast.unparse(node)[:80]}`")


class _Body:
    """The statements of one function; `names` are the variables and functions that it may read."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def check(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str())) | ast.Return(value=None):
                return
            case ast.Expr(value=ast.Call() as value) | ast.Return(value=ast.expr() as value):
                self._expression(value)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._target(target)
                self._expression(value)
            case ast.AugAssign(target=ast.Name(), op=op, value=value) if isinstance(op, _OPERATORS):
                self._expression(value)
            case ast.AnnAssign(target=ast.Name(), annotation=annotation, value=ast.expr() as value) if (
                _is_constexpr(annotation)
            ):
                self._expression(value)
            case ast.If(test=test, body=body, orelse=orelse) | ast.While(test=test, body=body, orelse=orelse):
                self._expression(test)
                self.check(body)
                self.check(orelse)
            case ast.For(target=ast.Name(), iter=ast.Call() as loop, body=body, orelse=[]) if (
                dotted(loop.func) in _LOOPS
            ):
                self._expression(loop)
                self.check(body)
            case _:
                raise unsupported(statement, f"the statement `{ast.unparse(statement)[:80]}`")

    def _target(self, target: ast.expr) -> None:
        match target:
            case ast.Name():
                return
            case ast.Tuple(elts=elements):
                for element in elements:
                    self._target(element)
            case _:
                raise unsupported(target, f"an assignment to `{ast.unparse(target)[:80]}`")

    def _expression(self, node: ast.expr) -> None:
        match node:
            case ast.Constant():
                constant_value(node)
            case ast.Name(id=name) if name in self._names:
                return
            case ast.Attribute():
                self._attribute(node)
            case ast.Call():
                self._call(node)
            case _:
                self._operation(node)

    def _operation(self, node: ast.expr) -> None:
        match node:
            case ast.BinOp(op=op) if isinstance(op, _OPERATORS):
                self._no_strings(node.left, node.right)
            case ast.UnaryOp(operand=operand):
                self._no_strings(operand)
            case ast.BoolOp(values=values):
                self._all(values)
            case ast.Compare(ops=ops) if all(isinstance(op, _COMPARISONS) for op in ops):
                self._all([node.left, *node.comparators])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._all([test, body, orelse])
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                self._all(elements)
            case ast.Subscript(value=value, slice=index):
                self._expression(value)
                self._index(index)
            case ast.Name(id=name):
                raise unsupported(node, f"the name `{name}`")
            case _:
                raise unsupported(node, f"`{ast.unparse(node)[:80]}`")

    def _all(self, nodes: list[ast.expr]) -> None:
        for node in nodes:
            self._expression(node)

    def _no_strings(self, *nodes: ast.expr) -> None:
        """Check operands: a repeated string would fill the memory at compile time."""
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                raise unsupported(node, "arithmetic with a string")
            self._expression(node)

    def _index(self, index: ast.expr) -> None:
        match index:
            case ast.Slice(lower=None, upper=None, step=None):
                return
            case ast.Tuple(elts=elements):
                for element in elements:
                    self._index(element)
            case _:
                self._expression(index)

    def _attribute(self, node: ast.Attribute) -> None:
        """Check a member of a module, or of a value."""
        path = dotted(node)
        owner, _, name = path.rpartition(".")
        if path and path.partition(".")[0] in _ROOTS:
            if name not in MODULES.get(owner, frozenset()):
                raise unsupported(node, f"`{path}`")
        elif node.attr in TENSOR_ATTRIBUTES:
            self._expression(node.value)
        else:
            raise unsupported(node, f"the attribute `.{node.attr}`")

    def _call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name) if name in BUILTINS:
                pass
            case ast.Attribute() if dotted(node.func) == _MACHINE_CODE:
                self._machine_code(node)
            case ast.Name() | ast.Attribute():
                self._expression(node.func)
            case _:
                raise unsupported(node, f"a call of `{ast.unparse(node.func)[:80]}`")
        self._all(node.args)
        for keyword in node.keywords:
            if keyword.arg is None:
                raise unsupported(node, "a call with ** arguments")
            self._expression(keyword.value)

    def _machine_code(self, node: ast.Call) -> None:
        """Check the text of machine code: plain instructions, which Inductor writes for exact arithmetic."""
        match node.args:
            case [ast.Constant(value=str() as text), ast.Constant(value=str()), *_] if INSTRUCTION.fullmatch(
                text
            ):
                return
        raise unsupported(node, f"`{_MACHINE_CODE}` with other text than plain instructions")
