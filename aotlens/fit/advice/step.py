"""The training step in the source: the statements of the forward, and the one that calls the backward.

Invariant: all statements of a step are consecutive statements of one block.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aotlens.fit.advice.jobs import NameFact, NamesOutcome
from aotlens.fixes.source import Source
from aotlens.model.source import Edit, Span

__all__ = [
    "INDENT",
    "TrainingStep",
    "backward_calls",
    "backward_ordinal",
    "find_step",
    "indented",
    "lines_of",
    "names_in",
    "wrapped",
]

INDENT = "    "


@dataclass(frozen=True, slots=True, eq=False)
class TrainingStep:
    """The part of a block that computes a loss and its gradients."""

    source: Source
    block: tuple[ast.stmt, ...]
    """All statements of the block."""
    first: int
    """The index of the first statement whose result requires a gradient."""
    last: int
    """The index of the statement that calls the backward."""

    @property
    def statements(self) -> tuple[ast.stmt, ...]:
        """Return the forward and the backward."""
        return self.block[self.first : self.last + 1]

    @property
    def forward(self) -> tuple[ast.stmt, ...]:
        """Return the statements before the backward; empty if it computes the loss itself."""
        return self.block[self.first : self.last]

    @property
    def backward(self) -> ast.stmt:
        return self.block[self.last]

    @property
    def scope(self) -> ast.AST:
        """Return the function around the step, or the module."""
        return self.source.function(self.backward) or self.source.tree

    def is_read_after(self, name: str) -> bool:
        """Return True if code after the backward reads the name before the step assigns it again."""
        end = self.backward.end_lineno or self.backward.lineno
        return any(
            isinstance(node, ast.Name)
            and node.id == name
            and isinstance(node.ctx, ast.Load)
            and node.lineno > end
            for node in ast.walk(self.scope)
        )


def backward_ordinal(source: Source, line: int) -> int | None:
    """Return which of the calls of a backward in the file is on this line; None for another line."""
    calls = list(backward_calls(source.tree))
    lines = [range(call.lineno, (call.end_lineno or call.lineno) + 1) for call in calls]
    return next((index for index, span in enumerate(lines) if line in span), None)


def backward_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of a backward in source order."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("backward", "manual_backward")
    ]
    yield from sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def find_step(source: Source, ordinal: int, outcome: NamesOutcome) -> TrainingStep | None:
    """Return the step whose backward is that call of the file, which may be an edited copy."""
    calls = list(backward_calls(source.tree))
    statement = source.statement(calls[ordinal]) if ordinal < len(calls) else None
    if statement is None:
        return None
    block = tuple(source.siblings(statement))
    last = block.index(statement)
    facts = {fact.name: fact for fact in outcome.names}
    computed = [
        index
        for index in range(last)
        if any(_requires_gradient(facts, name) for name in names_in(block[index], ast.Store))
    ]
    return TrainingStep(source, block, computed[0] if computed else last, last)


def _requires_gradient(facts: Mapping[str, NameFact], name: str) -> bool:
    fact = facts.get(name)
    return fact is not None and fact.kind == "tensor" and fact.requires_grad


def names_in(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Return the names that a statement reads, or those that it assigns."""
    return {
        child.id for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, context)
    }


def indented(source: Source, statements: tuple[ast.stmt, ...]) -> str | None:
    """Return the statements' lines, indented once more; None if one of them shares its line."""
    first, last = statements[0], statements[-1]
    if source.indent(first) is None:
        return None
    lines = source.between(lines_of(source, first, last)).splitlines(keepends=True)
    return "".join(INDENT + line if line.strip() else line for line in lines)


def wrapped(source: Source, statements: tuple[ast.stmt, ...], header: str) -> Edit | None:
    """Put the statements into a block that begins with the header."""
    text = indented(source, statements)
    indent = source.indent(statements[0])
    if text is None or indent is None:
        return None
    return Edit(lines_of(source, statements[0], statements[-1]), f"{indent}{header}\n{text}")


def lines_of(source: Source, first: ast.stmt, last: ast.stmt) -> Span:
    """Return the whole lines from one statement to another."""
    return Span(source.file, first.lineno, 0, (last.end_lineno or last.lineno) + 1, 0)
