"""The tensors that the user's local variables are bound to, for inlay hints.

Invariant: what is shown was really bound: the value is read from the running frame after the assignment
ran, and its place is the name in the assignment.
"""

import ast
import linecache
import sys
from types import CodeType, FrameType
from typing import Any

import torch

from aotlens.build.describe import describe_tensor
from aotlens.capture.frames import is_user_code
from aotlens.model.report import Span, Variable

Names = dict[int, tuple[tuple[str, Span], ...]]
"""By first line of an assignment: the names that it binds, with their spans."""


class VariableObserver:
    """While entered, watches the assignments of the user's frames."""

    def __init__(self) -> None:
        self._found: dict[Span, Variable] = {}
        self._names: dict[str, Names] = {}
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
        """What was found, in source order."""
        return tuple(
            sorted(self._found.values(), key=lambda found: (found.span.file, found.span.line, found.span.col))
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
                self._found[span] = Variable(span, name, describe_tensor(value))

    def _names_of(self, code: CodeType) -> Names:
        known = self._names.get(code.co_filename)
        if known is None:
            known = self._names[code.co_filename] = assigned_names(code.co_filename)
        return known


def assigned_names(filename: str) -> Names:
    """The names that each assignment of a file binds; empty when the file does not parse."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}
    found: dict[int, list[tuple[str, Span]]] = {}
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
                    found.setdefault(node.lineno, []).append((name.id, span))
    return {line: tuple(names) for line, names in found.items()}
