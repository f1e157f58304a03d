"""A source file as text and syntax tree, and minimal edits of it.

Invariant: an edit changes only the statements or expressions that it names; all other bytes stay.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar

from aotlens.model.source import Edit, Span

__all__ = ["Function", "Source"]

Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)


class Source:
    """One file of the user's; raises SyntaxError if it does not parse."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self.tree = ast.parse(text)
        self._lines = [line.encode() for line in text.splitlines(keepends=True)]

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, the innermost first."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def span(self, node: ast.expr | ast.stmt) -> Span:
        end_line, end_col = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return Span(self.file, node.lineno, node.col_offset, end_line, end_col)

    def expression_at(self, span: Span) -> ast.expr | None:
        """Return the outermost expression with exactly this span; None if there is none."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and self.span(node) == span:
                return node
        return None

    def code(self, node: ast.expr | ast.stmt) -> str:
        """Return the node's text."""
        return self.between(self.span(node))

    def between(self, span: Span) -> str:
        lines = self._lines[span.line - 1 : span.end_line]
        if not lines:
            return ""
        if span.end_line <= len(self._lines):  # a span of whole lines ends after the last one
            lines = [*lines[:-1], lines[-1][: span.end_col]]
        lines[0] = lines[0][span.col :]
        return b"".join(lines).decode()

    def grouped(self, node: ast.expr) -> str:
        """Return the node's text as an operand: in parentheses unless it binds tightest."""
        tight = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant)
        return self.code(node) if isinstance(node, tight) else f"({self.code(node)})"

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Return the innermost statement that contains a node, or the node itself."""
        for entry in (node, *self.ancestors(node)):
            if isinstance(entry, ast.stmt):
                return entry
        return None

    def function(self, node: ast.AST) -> Function | None:
        return next((ancestor for ancestor in self.ancestors(node) if isinstance(ancestor, Function)), None)

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        return next(
            (ancestor for ancestor in self.ancestors(node) if isinstance(ancestor, ast.ClassDef)), None
        )

    def function_at(self, qualname: str, line: int) -> Function | None:
        """Return the function that begins on a line, or at a decorator there; the name decides."""
        named = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, Function) and node.name == qualname.rpartition(".")[2]
        ]
        starts = {
            node: {node.lineno, *(decorator.lineno for decorator in node.decorator_list)} for node in named
        }
        exact = [node for node in named if line in starts[node]]
        matches = exact or (named if len(named) == 1 else [])
        return matches[0] if matches else None

    def nodes(self, *kinds: type[Node]) -> Iterator[Node]:
        """Yield the nodes of these kinds in the order of `ast.walk`."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def indent(self, statement: ast.stmt) -> str | None:
        """Return the white space before a statement; None if other text precedes it on its line."""
        before = self._lines[statement.lineno - 1][: statement.col_offset].decode()
        return before if not before.strip() else None

    def siblings(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statements of a statement's block."""
        parent = self.parents.get(statement)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                return block
        return []

    def comments(self, span: Span) -> list[str]:
        """Return the comments that begin within a span."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        texts = []
        for token in tokens:
            inside = span.line <= token.start[0] <= span.end_line
            if token.type == tokenize.COMMENT and inside:
                texts.append(token.string)
        return texts

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        return Edit(self.span(node), text)

    def insert_before(self, statement: ast.stmt, text: str) -> Edit | None:
        """Insert a line before the statement with its indentation; None if the statement shares its line."""
        indent = self.indent(statement)
        if indent is None:
            return None
        decorated = getattr(statement, "decorator_list", ())
        line = min([statement.lineno, *(decorator.lineno for decorator in decorated)])
        return Edit(Span(self.file, line, 0, line, 0), f"{indent}{text}\n")

    def delete(self, statement: ast.stmt) -> Edit | None:
        """Delete the statement's lines, or replace them by `pass` if its block would be empty."""
        if self.indent(statement) is None:
            return None
        if len(self.siblings(statement)) <= 1:
            return self.replace(statement, "pass")
        last = statement.end_lineno or statement.lineno
        if self._lines[last - 1][statement.end_col_offset or 0 :].strip().startswith(b";"):
            return None
        return Edit(Span(self.file, statement.lineno, 0, last + 1, 0), "")

    def after_imports(self, text: str) -> Edit | None:
        """Insert a line after the imports at the top of the module."""
        last: ast.stmt | None = None
        for statement in self.tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                last = statement
            elif last is not None or not _is_docstring(statement):
                break
        if last is None:
            return None
        line = (last.end_lineno or last.lineno) + 1
        at_end = line > len(self._lines) and not self._lines[-1].endswith(b"\n")
        return None if at_end else Edit(Span(self.file, line, 0, line, 0), f"\n{text}\n")

    def imports(self, module: str) -> bool:
        """Return True if the module is imported by its own name at the top."""
        return any(
            isinstance(statement, ast.Import)
            and any(alias.name == module and alias.asname is None for alias in statement.names)
            for statement in self.tree.body
        )

    @cached_property
    def _imported(self) -> dict[str, str]:
        """Return the dotted paths of the names that the file imports."""
        paths: dict[str, str] = {}
        for node in self.nodes(ast.Import, ast.ImportFrom):
            assert isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names:
                if isinstance(node, ast.ImportFrom):
                    package = "." * node.level + (node.module or "")
                    paths[alias.asname or alias.name] = f"{package}.{alias.name}"
                elif alias.asname is None:
                    name = alias.name.partition(".")[0]
                    paths[name] = name
                else:
                    paths[alias.asname] = alias.name
        return paths

    def imported_path(self, node: ast.expr) -> str:
        """Return `torch.optim.AdamW` for `optim.AdamW`, by the file's imports; empty if it has none."""
        name, dot, rest = self.code(node).partition(".")
        path = self._imported.get(name)
        return "" if path is None else f"{path}{dot}{rest}"

    def unused_name(self, *wishes: str) -> str:
        """Return the first of the names that the file does not use."""
        used = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        used |= {node.arg for node in ast.walk(self.tree) if isinstance(node, ast.arg)}
        return next((name for name in wishes if name not in used), f"{wishes[-1]}_")


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
