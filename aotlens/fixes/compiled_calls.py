"""Find where a script compiles a function, and where it calls the compiled one.

Invariant: only names of the file itself count; a function that is passed on under another name is not found.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from aotlens.fixes.source import Function, Source
from aotlens.model.source import Edit, Span

__all__ = ["CompileSite", "argument_of", "calls_of", "compile_sites", "dynamic_edit", "parameter_names"]


@dataclass(frozen=True, slots=True)
class CompileSite:
    """`torch.compile(f, …)`, a decorator, or `model.compile(…)`."""

    node: ast.expr
    name: str
    """The name of the compiled function or module; empty if it is bound to none."""


def compile_sites(source: Source, function: Function | None) -> list[CompileSite]:
    """Return the sites of the function, by decorator or name; else that of the file, if it has only one."""
    if function is not None:
        own = [decorator for decorator in function.decorator_list if _is_compile(source, decorator)]
        if own:
            return [CompileSite(decorator, function.name) for decorator in own]
    sites = [site for node in source.nodes(ast.Call) if (site := _site(source, node)) is not None]
    named = [
        site
        for site in sites
        if function is not None
        and isinstance(site.node, ast.Call)
        and site.node.args
        and source.code(site.node.args[0]).rpartition(".")[2] == function.name
    ]
    return named or (sites if len(sites) == 1 else [])


def _site(source: Source, node: ast.Call) -> CompileSite | None:
    """Return the site of `torch.compile(f)` or `model.compile()`; `re.compile(pattern)` has an argument."""
    if _is_compile(source, node):
        return CompileSite(node, _bound_name(source, node)) if node.args else None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "compile" and not node.args:
        return CompileSite(node, source.code(node.func.value))
    return None


def _is_compile(source: Source, node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return source.code(called) == "torch.compile"


def _bound_name(source: Source, node: ast.expr) -> str:
    statement = source.parents.get(node)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return source.code(statement.targets[0])
    return ""


def dynamic_edit(source: Source, site: CompileSite) -> Edit | None:
    """Return the edit that adds `dynamic=True` to the arguments of `torch.compile`."""
    node = site.node
    if not isinstance(node, ast.Call):
        return source.replace(node, f"{source.code(node)}(dynamic=True)")
    for keyword in node.keywords:
        if keyword.arg == "dynamic":
            is_on = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            return None if is_on else source.replace(keyword.value, "True")
    last = max(
        [*node.args, *(keyword.value for keyword in node.keywords)],
        key=lambda argument: (argument.end_lineno or 0, argument.end_col_offset or 0),
        default=None,
    )
    if last is None:
        return source.replace(node, f"{source.code(node.func)}(dynamic=True)")
    line, col = last.end_lineno or last.lineno, last.end_col_offset or 0
    return Edit(Span(source.file, line, col, line, col), ", dynamic=True")


def calls_of(source: Source, function: Function | None) -> Iterator[ast.Call]:
    """Yield the calls of the compiled function, in the order of the source."""
    names = {site.name for site in compile_sites(source, function) if site.name}
    for node in source.nodes(ast.Call):
        if source.code(node.func) in names:
            yield node


def parameter_names(function: Function) -> list[str]:
    """Return the parameters that a caller passes by position, without `self`."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] == ["self"] else names


def argument_of(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """Return the argument for a parameter; None if there is none, or by `*`."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = parameter_names(function)
    index = names.index(name) if name in names else len(call.args)
    if index >= len(call.args) or any(
        isinstance(argument, ast.Starred) for argument in call.args[: index + 1]
    ):
        return None
    return call.args[index]
