"""The targets of a text, found without running it.

Invariant: reads the text only; a text that does not parse has the targets of its last version that did.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HINT = re.compile(r"aotlens|torch\s*\.\s*compile|import\s+compile")
"""A text without any of these has no target, so a long file is not parsed in vain."""

EXAMPLE = re.compile(r"#\s*aotlens:\s*example\b")


@dataclass(frozen=True, slots=True)
class Found:
    """One target of a text."""

    line: int
    """0-based: the `def` or `class`, or the call of `torch.compile`."""
    qualname: str | None
    """None for what a call compiles: the script has to run to know it."""


@dataclass(frozen=True, slots=True)
class Bare:
    """A function that has no example yet."""

    qualname: str
    line: int
    """0-based line of its `def`."""
    first_line: int
    """0-based line of its first decorator, or of its `def`: an example comment goes above."""
    indent: str
    parameters: tuple[str, ...]
    """An example argument for each parameter without a default."""


def find(lines: Sequence[str]) -> tuple[Found, ...] | None:
    """The targets of a text in its order; None when it does not parse."""
    text = "\n".join(lines)
    if not HINT.search(text):
        return ()
    tree = _parse(text)
    if tree is None:
        return None
    found = {(one.line, one.qualname): one for one in (*_definitions(tree, lines), *_calls(tree))}
    return tuple(sorted(found.values(), key=lambda one: (one.line, one.qualname or "")))


def bare_functions(lines: Sequence[str], line: int) -> tuple[Bare, ...]:
    """The module's functions without an example whose definition starts around `line` (0-based)."""
    tree = _parse("\n".join(lines))
    return tuple(
        _bare(node, lines)
        for node in (tree.body if tree else ())
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _first(node) - 1 <= line <= node.body[0].lineno - 1
        and not _has_example(node, lines)
    )


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(node: ast.AST, lines: Sequence[str], prefix: str = "") -> Iterator[Found]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            continue
        if not isinstance(child, Definition):
            yield from _definitions(child, lines, prefix)
            continue
        name = f"{prefix}{child.name}"
        if _has_example(child, lines):
            yield Found(child.lineno - 1, name)
        elif any(_dotted(one) in ("aotlens.compile", "torch.compile") for one in child.decorator_list):
            yield Found(child.lineno - 1, None)
        if isinstance(child, ast.ClassDef):
            yield from _definitions(child, lines, f"{name}.")
        else:
            yield from (
                found for found in _definitions(child, lines, f"{name}.<locals>.") if not found.qualname
            )


def _calls(tree: ast.Module) -> Iterator[Found]:
    decorators = {
        id(one) for node in ast.walk(tree) if isinstance(node, Definition) for one in node.decorator_list
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in decorators and _dotted(node) == "torch.compile":
            yield Found(node.lineno - 1, None)


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _has_example(node: Definition, lines: Sequence[str]) -> bool:
    if any(_dotted(one) in ("aotlens.example", "example") for one in node.decorator_list):
        return True
    above = _first(node) - 2
    while above >= 0 and lines[above].lstrip().startswith("#"):
        if EXAMPLE.search(lines[above]):
            return True
        above -= 1
    return False


def _first(node: Definition) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _bare(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: Sequence[str]) -> Bare:
    args = [*node.args.posonlyargs, *node.args.args]
    needed = args[: len(args) - len(node.args.defaults)]
    first = _first(node) - 1
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    return Bare(node.name, node.lineno - 1, first, indent, tuple(_example(one) for one in needed))


def _example(arg: ast.arg) -> str:
    kind = ast.unparse(arg.annotation) if arg.annotation else "Tensor"
    return {"int": "1", "float": "1.0", "bool": "True", "str": '""'}.get(kind, "f32[8, 16]")
