"""`--largest BATCH`: find the number that a script names, and run the script with another one.

| the user writes | is varied |
|---|---|
| `BATCH` | a number that the script assigns: `BATCH = 16`, `batch: int = 16`, `f(batch=16)` |
| `BATCH@12` | the one at line 12, where several lines assign one |
| `--batch-size` | an option of the script, by its value in the arguments or its `default` in the script |

Invariant: the file of the script does not change.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from aotlens.errors import UserError
from aotlens.fit.job import FitJob
from aotlens.model.edits import edited
from aotlens.model.source import Edit, Span

__all__ = ["VariedSize", "find_size"]


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number in the script's text, with positions as in `ast`."""

    name: str
    value: int
    line: int
    col: int
    end_col: int
    is_assigned: bool
    """False for a keyword argument of a call."""


@dataclass(frozen=True, slots=True)
class VariedSize:
    """What is varied."""

    name: str
    """As the user wrote it."""
    value: int
    """The script's own."""
    number: Number | None
    """None for an option of the script."""

    def job_with(self, job: FitJob, value: int) -> FitJob:
        """Return the job that runs the script with this size."""
        if self.number is None:
            return replace(job, argv=_with_option(job.argv, self.name, value))
        number = self.number
        span = Span(job.path, number.line, number.col, number.line, number.end_col)
        text = edited(Path(job.path).read_text(encoding="utf-8"), [Edit(span, str(value))])
        return replace(job, texts={**job.texts, job.path: text})


def find_size(job: FitJob, name: str) -> VariedSize:
    """Return the size of that name in the script.

    Raises:
        UserError: the script has no such number, or several.
    """
    try:
        tree = ast.parse(Path(job.path).read_text(encoding="utf-8"), job.path)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UserError(f"{job.path}: cannot be parsed: {error}") from error
    if name.startswith("-"):
        return VariedSize(name, _option_value(job, tree, name), None)
    plain_name, _, line = name.partition("@")
    numbers = [number for number in _numbers(tree) if number.name == plain_name]
    chosen = [number for number in numbers if not line or str(number.line) == line]
    chosen = [number for number in chosen if number.is_assigned] or chosen
    if not chosen:
        raise UserError(f"{job.path} assigns no whole number to `{name}`{_names(tree)}")
    if len(chosen) > 1:
        lines = ", ".join(str(number.line) for number in chosen)
        raise UserError(
            f"{job.path} assigns numbers to `{name}` at lines {lines}: pass --largest {name}@{chosen[0].line}"
        )
    return VariedSize(name, chosen[0].value, chosen[0])


def _numbers(tree: ast.Module) -> Iterator[Number]:
    """Yield the whole numbers that have a name."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield from _number(name, value, is_assigned=True)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield from _number(name, value, is_assigned=True)
            case ast.keyword(arg=str(name), value=value):
                yield from _number(name, value, is_assigned=False)
            case ast.arguments():
                yield from _defaults(node)


def _defaults(arguments: ast.arguments) -> Iterator[Number]:
    names = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        yield from _number(argument.arg, default, is_assigned=True)


def _number(name: str, node: ast.expr | None, *, is_assigned: bool) -> Iterator[Number]:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0:
        assert node.end_col_offset is not None
        yield Number(name, node.value, node.lineno, node.col_offset, node.end_col_offset, is_assigned)


def _names(tree: ast.Module) -> str:
    """Return the names that the user can choose, as the end of a message."""
    names = dict.fromkeys(f"`{number.name}`" for number in _numbers(tree) if number.is_assigned)
    return f"; it does to {', '.join(names)}" if names else ""


def _option_value(job: FitJob, tree: ast.Module, name: str) -> int:
    words = [*job.argv, *_defaults_of_option(tree, name)]
    for index, word in enumerate(words):
        text = word.removeprefix(f"{name}=") if word.startswith(f"{name}=") else ""
        if word == name and index + 1 < len(words):
            text = words[index + 1]
        if text.isdecimal() and int(text):
            return int(text)
    raise UserError(
        f"the value of {name} is unknown: pass one to the script, `{job.path} {name} 16`, or give its"
        " `add_argument` a whole number as `default`"
    )


def _defaults_of_option(tree: ast.Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and any(
            isinstance(argument, ast.Constant) and argument.value == name for argument in node.args
        ):
            for keyword in node.keywords:
                default = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if keyword.arg == "default" and isinstance(default, int):
                    yield f"{name}={default}"


def _with_option(argv: tuple[str, ...], name: str, value: int) -> tuple[str, ...]:
    words = list(argv)
    for index, word in enumerate(words):
        if word == name and index + 1 < len(words):
            words[index + 1] = str(value)
            return tuple(words)
        if word.startswith(f"{name}="):
            words[index] = f"{name}={value}"
            return tuple(words)
    return (*argv, name, str(value))
