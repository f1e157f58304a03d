"""Local variables of the user's function: the expression and the tensor that each is bound to."""

import ast
import linecache
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from torch import fx

from aotlens.capture.provenance.dynamo_nodes import spans_of_node
from aotlens.capture.provenance.frames import is_user_code
from aotlens.ir.tensor_text import describe_tensor
from aotlens.model.report import Span, Variable


class Target(Enum):
    """What an expression is assigned to."""

    NAME = "a name, for the whole value"
    NAMES = "names that unpack it"
    OTHER = "items, attributes, nested names, or several targets"


@dataclass(frozen=True, slots=True)
class Name:
    """A variable in an assignment."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Assignment:
    """An expression that the user assigns."""

    value: Span
    """The expression; of `x += y` the whole statement."""
    line: int
    """The first line of the statement."""
    target: Target
    names: tuple[Name, ...]
    """The names in the target, in source order."""


def assigned_expressions(filename: str) -> dict[Span, Assignment]:
    """Return the assignments to names by the span of their expression; empty if the file does not parse."""
    return _assignments(filename)[0]


@lru_cache(maxsize=64)
def _assignments(filename: str) -> tuple[dict[Span, Assignment], dict[int, list[Name]]]:
    """Return the assignments to names by expression, and all assigned names by line."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}, {}
    by_expression: dict[Span, Assignment] = {}
    by_line: dict[int, list[Name]] = {}
    for node in ast.walk(tree):
        for assignment in _assignments_of(filename, node):
            by_line.setdefault(assignment.line, []).extend(assignment.names)
            if assignment.target is not Target.OTHER:
                by_expression[assignment.value] = assignment
    return by_expression, by_line


def _assignments_of(filename: str, node: ast.AST) -> Iterator[Assignment]:
    """Yield the assignments in one node; `a, b = x, y` is one for each name."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(
            targets
        ) == len(values) and all(isinstance(target, ast.Name) for target in targets):
            for target, value in zip(targets, values, strict=True):
                yield _assignment(filename, node, value, [target])
        case ast.Assign(targets=targets, value=value):
            yield _assignment(filename, node, value, targets)
        case ast.AugAssign(target=target):
            yield _assignment(filename, node, node, [target])
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
        ):
            yield _assignment(filename, node, value, [target])


def _assignment(filename: str, node: Any, value: Any, targets: list[Any]) -> Assignment:
    match targets:
        case [ast.Name()]:
            target = Target.NAME
        case [ast.Tuple(elts=parts) | ast.List(elts=parts)] if all(
            isinstance(part, ast.Name) for part in parts
        ):
            target = Target.NAMES
        case _:
            target = Target.OTHER
    within = (part for item in targets for part in ast.walk(item))
    names = tuple(Name(part.id, _span(filename, part)) for part in within if isinstance(part, ast.Name))
    return Assignment(_span(filename, value), node.lineno, target, names)


def _span(filename: str, node: Any) -> Span:
    return Span(filename, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)


def variables_of_nodes(gm: fx.GraphModule) -> tuple[Variable, ...]:
    """Return the variables that the graph's nodes are assigned to, in source order."""
    variables: dict[Span, Variable] = {}
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if not isinstance(value, (torch.Tensor, tuple, list)):
            continue
        for span in spans_of_node(node):
            assignment = assigned_expressions(span.file).get(span)
            if assignment is not None:
                variables |= _variables_for(assignment, value)
    return _in_source_order(variables.values())


def _variables_for(assignment: Assignment, value: Any) -> dict[Span, Variable]:
    """Return the variables for the names of an assignment, by span."""
    values = (value,) if assignment.target is Target.NAME else value
    if not isinstance(values, (tuple, list)) or len(assignment.names) != len(values):
        return {}
    return {
        name.span: Variable(name.span, name.text, describe_tensor(tensor))
        for name, tensor in zip(assignment.names, values, strict=True)
        if isinstance(tensor, torch.Tensor)
    }


def _in_source_order(variables: Iterable[Variable]) -> tuple[Variable, ...]:
    return tuple(
        sorted(variables, key=lambda variable: (variable.span.file, variable.span.line, variable.span.col))
    )


class VariableObserver:
    """Watches the assignments of the user's frames while entered."""

    def __init__(self) -> None:
        self._variables: dict[Span, Variable] = {}
        self._last: dict[FrameType, int] = {}
        self._before: Any = None

    def __enter__(self) -> "VariableObserver":
        self._before = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        self._last.clear()

    def variables(self) -> tuple[Variable, ...]:
        """Return the variables in source order."""
        return _in_source_order(self._variables.values())

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "call" or not is_user_code(frame.f_code):
            return None
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "return"):
            last = self._last.get(frame)
            if last is not None:
                self._read(frame, last)
            self._last[frame] = frame.f_lineno
            if event == "return":
                del self._last[frame]
        return self._on_line

    def _read(self, frame: FrameType, line: int) -> None:
        for name in _assignments(frame.f_code.co_filename)[1].get(line, ()):
            value = frame.f_locals.get(name.text)
            if isinstance(value, torch.Tensor):
                self._variables[name.span] = Variable(name.span, name.text, describe_tensor(value))
