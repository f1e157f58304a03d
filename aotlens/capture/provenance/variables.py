"""Local variables of the user's function: the expression and the tensor that each is bound to."""

import ast
import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import torch
from torch import fx

from aotlens.capture.provenance.frames import is_user_code
from aotlens.ir.tensor_text import describe_tensor
from aotlens.model.report import Span, Variable


@lru_cache(maxsize=64)
def bound_expressions(filename: str) -> dict[Span, str]:
    """Return the assigned name by the span of its expression; empty if the file does not parse.

    The span of `x += y` is the whole statement.
    """
    names_by_span = {}
    for node in _statements(filename):
        target, value = _target(node), getattr(node, "value", None)
        if target is not None and value is not None:
            names_by_span[_expression_span(filename, node if isinstance(node, ast.AugAssign) else value)] = (
                target.id
            )
        names = _unpacked_names(node)
        if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
            names_by_span |= {
                _expression_span(filename, element): name
                for element, name in zip(value.elts, names, strict=True)
            }
    return names_by_span


@lru_cache(maxsize=64)
def unpacked_expressions(filename: str) -> dict[Span, tuple[str, ...]]:
    """Return the assigned names by the span of an unpacked expression (`q, k, v = x.unbind()`)."""
    return {
        _expression_span(filename, node.value): names
        for node in _statements(filename)
        if isinstance(node, ast.Assign)
        and (names := _unpacked_names(node))
        and not isinstance(node.value, ast.Tuple)
    }


@lru_cache(maxsize=64)
def _statements(filename: str) -> tuple[ast.AST, ...]:
    try:
        return tuple(ast.walk(ast.parse("".join(linecache.getlines(filename)))))
    except SyntaxError:
        return ()


def _unpacked_names(node: ast.AST) -> tuple[str, ...]:
    """Return the plain names that a statement unpacks into; empty if any target is not a name."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    names = tuple(part.id for part in parts if isinstance(part, ast.Name))
    return names if len(names) == len(parts) else ()


def _target(node: ast.AST) -> ast.Name | None:
    """Return the single plain name that a statement binds."""
    if isinstance(node, ast.Assign):
        target = node.targets[0] if len(node.targets) == 1 else None
    else:
        target = getattr(node, "target", None) if isinstance(node, _BINDING) else None
    return target if isinstance(target, ast.Name) else None


_BINDING = (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)


def _expression_span(filename: str, node: ast.AST) -> Span:
    assert isinstance(node, ast.expr | ast.stmt)
    return Span(
        filename, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0
    )


@dataclass(frozen=True, slots=True)
class Name:
    """A variable in an assignment."""

    text: str
    span: Span


Names = Name | tuple[Name, ...]
"""A single name for the whole value, or several names that unpack it."""


def variables_of_nodes(
    gm: fx.GraphModule, spans: Callable[[fx.Node], tuple[Span, ...]]
) -> tuple[Variable, ...]:
    """Return the variables that the graph's nodes are assigned to, in source order."""
    by_file: dict[str, dict[Span, Names]] = {}
    variables: dict[Span, Variable] = {}
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if not isinstance(value, (torch.Tensor, tuple, list)):
            continue
        for span in spans(node):
            known = by_file.get(span.file)
            if known is None:
                known = by_file[span.file] = assigned_expressions(span.file)
            variables |= _variables_for(known.get(span), value)
    return tuple(sorted(variables.values(), key=lambda variable: (variable.span.line, variable.span.col)))


def _variables_for(names: Names | None, value: Any) -> dict[Span, Variable]:
    """Return the variables for the names of an assignment, by span."""
    if names is None:
        return {}
    if isinstance(names, Name):
        names, value = (names,), (value,)
    if not isinstance(value, (tuple, list)) or len(names) != len(value):
        return {}
    pairs = [pair for pair in zip(names, value, strict=True) if isinstance(pair[1], torch.Tensor)]
    return {name.span: Variable(name.span, name.text, describe_tensor(tensor)) for name, tensor in pairs}


def assigned_expressions(filename: str) -> dict[Span, Names]:
    """Return the assigned names by the span of the right-hand side."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}
    targets: dict[Span, Names] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            names = _names(filename, node.targets[0])
            if names is not None:
                targets[_span(filename, node.value)] = names
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            targets[_span(filename, node)] = Name(node.target.id, _span(filename, node.target))
    return targets


def _names(filename: str, target: ast.expr) -> Names | None:
    match target:
        case ast.Name(id=text):
            return Name(text, _span(filename, target))
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            names = [Name(part.id, _span(filename, part)) for part in parts if isinstance(part, ast.Name)]
            return tuple(names) if len(names) == len(parts) else None
    return None


def _span(filename: str, node: Any) -> Span:
    return Span(filename, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)


NamesByLine = dict[int, tuple[tuple[str, Span], ...]]
"""The names that an assignment binds, with their spans, by the assignment's first line."""


class VariableObserver:
    """Watches the assignments of the user's frames while entered."""

    def __init__(self) -> None:
        self._variables: dict[Span, Variable] = {}
        self._names: dict[str, NamesByLine] = {}
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
        return tuple(
            sorted(
                self._variables.values(),
                key=lambda variable: (variable.span.file, variable.span.line, variable.span.col),
            )
        )

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
        for name, span in self._names_of(frame.f_code).get(line, ()):
            value = frame.f_locals.get(name)
            if isinstance(value, torch.Tensor):
                self._variables[span] = Variable(span, name, describe_tensor(value))

    def _names_of(self, code: CodeType) -> NamesByLine:
        known = self._names.get(code.co_filename)
        if known is None:
            known = self._names[code.co_filename] = assigned_names(code.co_filename)
        return known


def assigned_names(filename: str) -> NamesByLine:
    """Return the names that each assignment of a file binds; empty if the file does not parse."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}
    names_by_line: dict[int, list[tuple[str, Span]]] = {}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            continue
        for target in targets:
            for name in ast.walk(target) if target is not None else ():
                if isinstance(name, ast.Name):
                    span = Span(
                        filename,
                        name.lineno,
                        name.col_offset,
                        name.end_lineno or name.lineno,
                        name.end_col_offset or 0,
                    )
                    names_by_line.setdefault(node.lineno, []).append((name.id, span))
    return {line: tuple(names) for line, names in names_by_line.items()}
