"""The targets of a text, found without running it.

Invariant: reads the text only; a text that does not parse gives None, so that the last known targets stay.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from aotlens.errors import ExampleError
from aotlens.model.report import Span
from aotlens.worker.grammar import ExampleText, parse_example
from aotlens.worker.targets import StaticTarget, find_targets
from lsp_server.text.parsing import parse, parsing

MENTIONED = re.compile(r"aotlens|torch|compile")
"""A text without any of these words has no target, and is not parsed."""

SEPARATORS = {ord(char): " " * len(char.encode()) for char in "\v\f\x1c\x1d\x1e\x85\u2028\u2029"}
"""`str.splitlines` ends a line at these and Python's tokenizer does not; blanks as wide keep the columns."""


@dataclass(frozen=True, slots=True)
class TextTarget:
    """One target of a text."""

    line: int
    """0-based: the `def` or `class`, or the compile call."""
    qualname: str | None
    """None for the argument of a compile call: only running the script tells its name."""


@dataclass(frozen=True, slots=True)
class BadExample:
    """An example comment that does not follow the grammar."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Scan:
    """The targets of one version of a text."""

    targets: tuple[TextTarget, ...] = ()
    bad_examples: tuple[BadExample, ...] = ()
    functions: tuple[StaticTarget, ...] = ()
    """The module's functions without an example."""
    lines: tuple[str, ...] = ()
    """The text that was read."""


@dataclass(frozen=True, slots=True)
class UnmarkedFunction:
    """A function without an example."""

    qualname: str
    first_line: int
    """0-based line of its first decorator, or of its `def`: an example comment goes above it."""
    arguments: tuple[str, ...]
    """An example argument for each parameter without a default."""


def scan(lines: Sequence[str], file: str) -> Scan | None:
    """Return the targets of a text and the errors in their examples; None when it does not parse."""
    text = _text(lines)
    if not MENTIONED.search(text):
        return Scan()
    every = _parsed(text, file)
    if every is None:
        return None
    marked = [target for target in every if target.how != "definition"]
    by_line = {
        definition.span.line - 1: TextTarget(definition.span.line - 1, definition.qualname or None)
        for definition in marked
    }
    examples = (example for target in marked for example in target.examples)
    return Scan(
        tuple(by_line.values()),
        tuple(filter(None, map(_bad_example, examples))),
        tuple(
            definition
            for definition in every
            if definition.kind == "function"
            and definition.how != "example"
            and "." not in definition.qualname
        ),
        tuple(lines),
    )


def unmarked_functions(seen: Scan, line: int) -> tuple[UnmarkedFunction, ...]:
    """Return the module's functions without an example whose head is at `line` (0-based)."""
    heads = (
        function for function in seen.functions if function.body.line - 1 <= line <= function.span.line - 1
    )
    return tuple(_unmarked_function(target, seen.lines) for target in heads)


def _bad_example(example: ExampleText) -> BadExample | None:
    try:
        parse_example(example)
    except ExampleError as error:
        return BadExample(error.span or example.span, error.message)
    return None


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines).translate(SEPARATORS)


def _parsed(text: str, file: str) -> tuple[StaticTarget, ...] | None:
    return parsing(lambda: find_targets(text, file))


def _unmarked_function(target: StaticTarget, lines: Sequence[str]) -> UnmarkedFunction:
    first = target.body.line - 1
    tree = parse("\n".join(lines[first : target.body.end_line]))
    node = tree.body[0] if tree is not None else None
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)  # the whole text was parsed before
    parameters = [*node.args.posonlyargs, *node.args.args]
    needed = parameters[: len(parameters) - len(node.args.defaults)]
    return UnmarkedFunction(target.qualname, first, tuple(map(_example, needed)))


def _example(parameter: ast.arg) -> str:
    kind = ast.unparse(parameter.annotation) if parameter.annotation else "Tensor"
    return {"int": "1", "float": "1.0", "bool": "True", "str": '""'}.get(kind, "f32[8, 16]")
