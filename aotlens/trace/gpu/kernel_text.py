"""Rebuild the text of a logged Triton kernel from its syntax tree, so that no text of the log is executed.

Invariant: the rebuilt text has our own imports, the decorator's literals, and functions that pass the subset.
"""

import ast
from dataclasses import dataclass

from aotlens.errors import UserError
from aotlens.trace.gpu.bodies import check_function, constant_value, dotted, unsupported
from aotlens.trace.gpu.launch_settings import read_decorator
from aotlens.trace.gpu.subset import BUILTINS
from aotlens.view.quantities import every_digit

__all__ = ["KernelText", "kernel_text"]

MAX_TEXT = 200_000
IMPORTS = """import torch
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, DeviceProperties, ReductionHint, TileHint
triton_helpers.set_driver_to_gpu()
"""
_BINDINGS = {
    "AttrsDescriptor": ("triton.compiler.compiler", "torch._inductor.runtime.hints"),
    "AutotuneHint": ("torch._inductor.runtime.hints",),
    "DeviceProperties": ("torch._inductor.runtime.hints",),
    "ReductionHint": ("torch._inductor.runtime.hints",),
    "TileHint": ("torch._inductor.runtime.hints",),
    "libdevice": ("torch._inductor.runtime.triton_helpers", "triton.language.extra"),
    "tl": ("triton.language",),
    "tl_math": ("torch._inductor.runtime.triton_helpers.math",),
    "torch": ("torch",),
    "triton": ("triton",),
    "triton_helpers": ("torch._inductor.runtime",),
    "triton_heuristics": ("torch._inductor.runtime",),
}
"""The names that a kernel's imports may bind, and their modules; `IMPORTS` takes their place."""
_DRIVER = "triton_helpers.set_driver_to_gpu"


@dataclass(frozen=True, slots=True)
class KernelText:
    """One kernel, ready to be compiled."""

    name: str
    """The kernel's function."""
    source: str
    has_grid: bool
    """Whether the grid follows from the arguments of a launch."""


def kernel_text(definition: str) -> KernelText:
    """Return the kernel in `NAME = async_compile.triton('NAME', '''…''')`.

    Raises UserError for text outside of the Triton subset, with what is outside and its line.
    """
    try:
        return _rebuilt(ast.parse(_inner_text(definition)))
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise UserError(f"the logged text is no Python: {type(error).__name__}: {error}") from error


def _inner_text(definition: str) -> str:
    """Return the kernel's own module text."""
    if len(definition) >= MAX_TEXT:
        raise UserError(f"the logged text has {every_digit(MAX_TEXT)} characters or more")
    match ast.parse(definition).body:
        case [ast.Assign(value=ast.Call(func=func, args=[_, ast.Constant(value=str() as text), *_]))] if (
            dotted(func) == "async_compile.triton"
        ):
            return text
    raise UserError("the log has no Triton text for it")


def _rebuilt(module: ast.Module) -> KernelText:
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    if not functions:
        raise UserError("the logged text has no function")
    constants = {}
    for statement in module.body:
        match statement:
            case ast.FunctionDef():
                pass
            case ast.Import() | ast.ImportFrom():
                _check_import(statement)
            case ast.Expr(value=ast.Call(func=func, args=[], keywords=[])) if dotted(func) == _DRIVER:
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                constants[name] = _constant(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                constants[name] = _constant(value)
            case _:
                raise unsupported(statement, f"the statement `{ast.unparse(statement)[:80]}`")
    names = frozenset({function.name for function in functions} | set(constants))
    for name in names:
        if name in _BINDINGS or name in BUILTINS or name.startswith("__"):
            raise unsupported(module, f"the name `{name}`")
    *helpers, kernel = functions
    for function in functions:
        check_function(function, names)
    decorator = read_decorator(_first_decorator(kernel), kernel)
    parts = [
        IMPORTS,
        *(f"{name} = tl.constexpr({value!r})" for name, value in constants.items()),
        *(_function(helper, "@triton.jit") for helper in helpers if _only_jit(helper, 1)),
        _function(kernel, f"{decorator.text}\n@triton.jit"),
    ]
    return KernelText(kernel.name, "\n".join(parts), decorator.has_grid)


def _check_import(statement: ast.Import | ast.ImportFrom) -> None:
    """Raise UserError for an import that binds another name or module than ours.

    The path is `a` in `import a` and in `from a import b`, and `a.b` in `from a import b as c`, where the new
    name alone does not say what it is.
    """
    module = statement.module if isinstance(statement, ast.ImportFrom) else None
    for alias in statement.names:
        name = alias.asname or alias.name
        path = f"{module}.{alias.name}" if alias.asname and module else module or alias.name
        if path not in _BINDINGS.get(name, ()):
            raise unsupported(statement, f"`{ast.unparse(statement)[:80]}`")


def _constant(node: ast.expr) -> object:
    """Return a module's constant, which may be wrapped in `tl.constexpr`."""
    match node:
        case ast.Call(func=func, args=[value], keywords=[]) if dotted(func) == "tl.constexpr":
            return constant_value(value)
    return constant_value(node)


def _first_decorator(kernel: ast.FunctionDef) -> ast.expr:
    _only_jit(kernel, 2)
    return kernel.decorator_list[0]


def _only_jit(function: ast.FunctionDef, count: int) -> bool:
    """Return True; raises UserError unless the function has that many decorators, the last `@triton.jit`."""
    decorators = function.decorator_list
    if len(decorators) != count or dotted(decorators[-1]) != "triton.jit":
        words = ", ".join(f"@{ast.unparse(decorator)[:40]}" for decorator in decorators) or "no decorator"
        raise unsupported(function, f"the function `{function.name}` with {words}")
    return True


def _function(function: ast.FunctionDef, decorators: str) -> str:
    """Return the text of a checked function."""
    plain = ast.FunctionDef(
        function.name, function.args, function.body, [], None, lineno=function.lineno, col_offset=0
    )
    return f"\n{decorators}\n{ast.unparse(plain)}\n"
