"""What an example is, and how a module collects its own."""

from collections.abc import Callable
from dataclasses import dataclass

from aotlens import CompileOptions

EAGER = CompileOptions(backend="eager")
DYNAMIC = CompileOptions(backend="eager", dynamic=True)

Program = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Example:
    """A program that raises one case."""

    case: str
    run: Program


def collector(examples: list[Example]) -> Callable[[str], Callable[[Program], Program]]:
    """Return the decorator that adds a module's functions to its list."""

    def shows(case: str) -> Callable[[Program], Program]:
        def add(run: Program) -> Program:
            examples.append(Example(case, run))
            return run

        return add

    return shows
