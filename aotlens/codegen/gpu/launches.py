"""Kernel launches, parsed from a wrapper that Inductor generated; no other module parses its text.

Invariant: arguments are the wrapper's own expressions; where sizes are symbolic, numbers are evaluated at the
example's sizes.
"""

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LAUNCH = re.compile(r"^\s+((\w+)\.run\(.*, stream=\w+\))$", re.MULTILINE)
_ASSIGNED = re.compile(r"^\s+(\w+) = (.+)$", re.MULTILINE)
_CALLED = {"math": math, "max": max, "min": min, "int": int, "__builtins__": {}}
"""The functions that size expressions may call."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch as the wrapper makes it."""

    kernel: str
    arguments: tuple[str, ...]
    """Names of buffers, and numbers, without the stream."""
    is_example: bool = False
    """Whether a number among them holds for the example's sizes only."""

    def buffer(self, index: int) -> str | None:
        """Return the name of an argument's buffer; None if the argument is not a name."""
        text = self.arguments[index]
        return text if text.isidentifier() else None


def launches_in(source: str, sizes: Mapping[str, int] | None = None) -> Iterator[Launch]:
    """Yield all launches in the order of the text; `sizes` are the example's, by symbol."""
    body = source[source.rfind("def call(") :]
    known = _Numbers(dict(sizes), dict(_ASSIGNED.findall(body))) if sizes else None
    for call, kernel in _LAUNCH.findall(body):
        texts = tuple(_arguments(call))
        if known is None:
            yield Launch(kernel, texts)
        else:
            numbers = tuple(map(known.evaluated, texts))
            yield Launch(kernel, numbers, numbers != texts)


def _arguments(call: str) -> Iterator[str]:
    parsed = ast.parse(call, mode="eval").body
    assert isinstance(parsed, ast.Call)  # the pattern matches calls only
    for argument in parsed.args:
        yield ast.get_source_segment(call, argument) or ""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Evaluates expressions over sizes; mutable, since results are memoised."""

    values: dict[str, int]
    assigned: dict[str, str]

    def evaluated(self, text: str) -> str:
        """Return the number to which the text evaluates, or the text itself."""
        value = self._value(text)
        return text if value is None else str(value)

    def _value(self, text: str) -> int | None:
        """Evaluate a size of a launch; None for what only a run of the wrapper knows."""
        if text in self.values:
            return self.values[text]
        if text.isidentifier() and text in self.assigned:
            expression = self.assigned.pop(text)  # evaluate once, even if it refers to itself
            if (value := self._value(expression)) is not None:
                self.values[text] = value
            return value
        try:
            for name in {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}:
                if name in self.assigned:
                    self._value(name)
            result = eval(text, _CALLED, dict(self.values))  # noqa: S307 (the wrapper that is run as it is)
        except (NameError, SyntaxError, TypeError, ValueError, AttributeError):
            return None  # a buffer, or a data-dependent number
        return int(result) if isinstance(result, (int, float)) else None
