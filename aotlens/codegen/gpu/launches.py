"""The launches in a wrapper that Inductor wrote: the one place that reads them from its text.

Invariant: arguments are told in the wrapper's own words; where sizes are symbolic, a number by its value for
the example's sizes.
"""

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LAUNCH = re.compile(r"^\s+((\w+)\.run\(.*, stream=\w+\))$", re.MULTILINE)
_ASSIGNED = re.compile(r"^\s+(\w+) = (.+)$", re.MULTILINE)
_CALLED = {"math": math, "max": max, "min": min, "int": int, "__builtins__": {}}
"""What sizes are computed by."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch as the wrapper makes it."""

    kernel: str
    arguments: tuple[str, ...]
    """Without the stream: names of buffers and numbers."""
    is_example: bool = False
    """Whether a number among them holds for the example's sizes only."""

    def buffer(self, index: int) -> str | None:
        """The name of an argument; None for what is no plain name."""
        text = self.arguments[index]
        return text if text.isidentifier() else None


def launches_in(source: str, sizes: Mapping[str, int] | None = None) -> Iterator[Launch]:
    """All launches in the order of the text; `sizes` are the example's, by symbol."""
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
    assert isinstance(parsed, ast.Call)  # the pattern finds nothing else
    for argument in parsed.args:
        yield ast.get_source_segment(call, argument) or ""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What expressions over sizes come to; mutable: what is found is kept."""

    values: dict[str, int]
    assigned: dict[str, str]

    def evaluated(self, text: str) -> str:
        """The number that the text stands for, or the text."""
        value = self._value(text)
        return text if value is None else str(value)

    def _value(self, text: str) -> int | None:
        if text in self.values:
            return self.values[text]
        if text.isidentifier() and text in self.assigned:
            expression = self.assigned.pop(text)  # at most once, whatever refers to itself
            if (value := self._value(expression)) is not None:
                self.values[text] = value
            return value
        try:
            for name in {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}:
                if name in self.assigned:
                    self._value(name)
            result = eval(text, _CALLED, dict(self.values))  # noqa: S307 (the wrapper that is run as it is)
        except (NameError, SyntaxError, TypeError, ValueError, AttributeError):
            return None  # a buffer, or a number that only the data tells
        return int(result) if isinstance(result, (int, float)) else None
