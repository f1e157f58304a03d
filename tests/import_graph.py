"""Read from the source which module imports which, without running it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("aotlens", "lsp_server", "tui")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name."""

    module: str
    """Absolute: `torch._guards`."""
    name: str | None
    """`tracing` in `from torch._guards import tracing`; None for `import torch._guards`."""
    line: int
    when: str
    """`start` (runs when the module is imported), `call` (inside a function) or `types` (TYPE_CHECKING)."""


@dataclass(frozen=True, slots=True)
class Module:
    """One source file of the product."""

    name: str
    path: Path
    tree: ast.Module
    imports: tuple[Import, ...]

    @property
    def package(self) -> str:
        """Return `aotlens.capture` for `aotlens.capture.run`; `aotlens.pipeline` for itself."""
        return ".".join(self.name.split(".")[:2])

    def location(self, line: int) -> str:
        """Return the location for a failing test's message."""
        return f"{self.path.relative_to(ROOT)}:{line}"


def names() -> list[str]:
    """Return the name of every module of the product, without parsing them."""
    return list(_files())


@cache
def modules() -> dict[str, Module]:
    """Return every module of the product by name; parsing them takes a second and more."""
    return {name: parsed(name) for name in _files()}


@cache
def parsed(name: str) -> Module:
    """Return this module of the product."""
    path = _files()[name]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    return Module(name, path, tree, tuple(_imports(tree.body, package, "start")))


@cache
def _files() -> dict[str, Path]:
    """Return the source file of every module of the product, by the module's name."""
    return {_name(path): path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))}


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(body: list[ast.stmt], package: str, when: str) -> Iterator[Import]:
    for statement in body:
        match statement:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(alias.name, None, statement.lineno, when)
            case ast.ImportFrom(names=names):
                module = _absolute(statement, package)
                for alias in names:
                    yield Import(module, alias.name, statement.lineno, when)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _imports(statement.body, package, "call")
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _imports(statement.body, package, "types")
            case _:
                yield from _nested(statement, package, when)


def _nested(statement: ast.stmt, package: str, when: str) -> Iterator[Import]:
    """Yield imports inside classes, with, try, if, match and loops."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for entry in getattr(statement, field, []):
            inner = entry.body if isinstance(entry, ast.ExceptHandler | ast.match_case) else [entry]
            yield from _imports(inner, package, when)


def _absolute(statement: ast.ImportFrom, package: str) -> str:
    if not statement.level:
        return statement.module or ""
    base = package.split(".")[: len(package.split(".")) - statement.level + 1]
    return ".".join([*base, *([statement.module] if statement.module else [])])


def resolved(entry: Import) -> str:
    """Return the product's module that an import loads: `…model.codec` for `from aotlens.model import
    codec`.
    """
    inner = f"{entry.module}.{entry.name}"
    return inner if entry.name and inner in _files() else entry.module


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return every group of nodes that reach each other (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for after in sorted(graph.get(node, ())):
            if after not in index:
                visit(after)
                low[node] = min(low[node], low[after])
            elif after in stack:
                low[node] = min(low[node], index[after])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups
