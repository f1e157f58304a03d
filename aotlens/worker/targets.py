"""The targets of a script as its text shows them, without running it.  Stdlib only.

    find_targets(source, file) -> (StaticTarget, ...)     in source order; raises SyntaxError

Every function, method and class is listed with the span of its name; `how` says what makes it a target:

    "compile"     decorated with `torch.compile` or `aotlens.compile`, or given to one of them by name
    "example"     has an example, in a comment above it or by the `aotlens.example` decorator
    "definition"  nothing yet: it can be traced by name (`SCRIPT::qualname`) if the script's run calls it

Calls of `torch.compile(...)` and `module.compile()` are listed too, with an empty qualname.
"""

import ast
import io
import re
import tokenize
from dataclasses import dataclass, replace
from typing import Literal

from aotlens.model.report import Span
from aotlens.worker.grammar import ExampleText

__all__ = ["StaticTarget", "find_targets"]

Kind = Literal["function", "method", "class", "call"]
How = Literal["compile", "example", "definition"]

_COMMENT = re.compile(r"#\s*aotlens:\s*example\b[ \t]*(?P<text>.*)$")
_CONTINUATION = re.compile(r"#\s?(?P<text>.*)$")
_COMPILERS = frozenset({"torch.compile", "aotlens.compile"})


@dataclass(frozen=True, slots=True)
class StaticTarget:
    """A location in the script where something can be traced."""

    qualname: str
    """The name in `SCRIPT::qualname`; empty for a compile call."""
    kind: Kind
    how: How
    span: Span
    """The name in the `def` or `class` line, or the compile call."""
    body: Span
    """The whole definition, decorators included, or the compile call."""
    examples: tuple[ExampleText, ...] = ()
    """Examples in comments; those of decorators are known only when the script runs."""


def find_targets(source: str, file: str) -> tuple[StaticTarget, ...]:
    """Return every definition and compile call of a script, in source order."""
    tree = ast.parse(source, file)
    finder = _Finder(file, source, _imported_names(tree), _example_comments(source, file))
    finder.visit(tree)
    compiled_names = finder.compiled_names
    marked = (
        replace(target, how="compile")
        if target.qualname in compiled_names and target.how == "definition"
        else target
        for target in finder.targets
    )
    return tuple(sorted(marked, key=lambda target: (target.body.line, target.body.col)))


class _Finder(ast.NodeVisitor):
    def __init__(
        self, file: str, source: str, names: dict[str, str], comments: dict[int, list[ExampleText]]
    ) -> None:
        self.targets: list[StaticTarget] = []
        self.compiled_names: set[str] = set()
        """Names that are passed directly to a compiler."""
        self._file = file
        self._lines = source.splitlines()
        self._names = names
        self._comments = comments
        self._path: list[str] = []
        self._in_class: list[bool] = []

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        is_class = isinstance(node, ast.ClassDef)
        kind: Kind = "class" if is_class else "method" if self._in_class[-1:] == [True] else "function"
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        examples = tuple(self._examples_above(first))
        decorators = {self._dotted(_called(decorator)) for decorator in node.decorator_list}
        how: How = "compile" if decorators & _COMPILERS else "definition"
        if examples or "aotlens.example" in decorators:
            how = "example"
        qualname = ".".join([*self._path, node.name])
        body = replace(self._span(node), line=first)
        self.targets.append(StaticTarget(qualname, kind, how, self._name_span(node), body, examples))
        self._enter(node, [node.name] if is_class else [node.name, "<locals>"], is_class)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 (ast.NodeVisitor calls it by this name)
    visit_ClassDef = visit_FunctionDef  # noqa: N815 (same)

    def _enter(self, node: ast.AST, names: list[str], is_class: bool) -> None:
        self._path += names
        self._in_class.append(is_class)
        self.generic_visit(node)
        self._in_class.pop()
        del self._path[-len(names) :]

    def visit_Call(self, node: ast.Call) -> None:
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "compile" and not node.args
        if self._dotted(node.func) in _COMPILERS and node.args:
            if isinstance(node.args[0], ast.Name):
                self.compiled_names.add(node.args[0].id)
            self._add_call(node)
        elif is_method and self._dotted(node.func) not in _COMPILERS and not self._is_module(node.func):
            self._add_call(node)
        self.generic_visit(node)

    def _add_call(self, node: ast.Call) -> None:
        span = self._span(node)
        self.targets.append(StaticTarget("", "call", "compile", span, span))

    def _is_module(self, function: ast.expr) -> bool:
        """Return True if `x` in `x.compile()` is an imported module, as in `re.compile()`."""
        return self._dotted(function).split(".")[0] in self._names.values()

    def _dotted(self, node: ast.expr) -> str:
        """Return `torch.compile` for that expression, whatever name it was imported as; empty for others."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self._dotted(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""

    def _examples_above(self, first: int) -> list[ExampleText]:
        """Return the examples in the block of comments that ends on the line before."""
        examples: list[ExampleText] = []
        line = first - 1
        while line >= 1 and self._lines[line - 1].lstrip().startswith("#"):
            examples = self._comments.get(line, []) + examples
            line -= 1
        return examples

    def _name_span(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Span:
        line = self._lines[node.lineno - 1].encode()
        col = line.find(node.name.encode(), node.col_offset)
        return Span(self._file, node.lineno, col, node.lineno, col + len(node.name.encode()))

    def _span(self, node: ast.stmt | ast.expr) -> Span:
        end_line, end_col = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return Span(self._file, node.lineno, node.col_offset, end_line, end_col)


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Return what each imported name refers to: `import torch as t` gives `t: torch`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _example_comments(source: str, file: str) -> dict[int, list[ExampleText]]:
    """Return examples by their first line; an example that ends in a comma continues in the next comment."""
    comments = {
        token.start[0]: token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    examples: dict[int, list[ExampleText]] = {}
    for line, token in comments.items():
        match = _COMMENT.match(token.string)
        if match is None:
            continue
        before = token.line[: token.start[1]] + token.string[: match.start("text")]
        col, end_col = len(before.encode()), len((before + match["text"]).encode())
        examples[line] = [
            _continued(ExampleText(match["text"], Span(file, line, col, line, end_col)), comments)
        ]
    return examples


def _continued(example: ExampleText, comments: dict[int, tokenize.TokenInfo]) -> ExampleText:
    text, line = example.text, example.span.line
    while text.rstrip().endswith(",") and line + 1 in comments:
        line += 1
        match = _CONTINUATION.match(comments[line].string)
        assert match is not None
        text = f"{text.rstrip()} {match['text'].strip()}"
    end_col = (
        len(comments[line].line.rstrip().encode()) if line != example.span.line else example.span.end_col
    )
    return ExampleText(text, replace(example.span, end_line=line, end_col=end_col))
