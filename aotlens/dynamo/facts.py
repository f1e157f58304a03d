"""What Dynamo did with each user function, as the listener collects it.

Invariant: the records are facts of one run, in Dynamo's terms; `records` turns them into the report's.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aotlens.model.dynamo import Cause
from aotlens.model.source import Span
from aotlens.torch_api.dynamo.events import DynamoConstant, Frames

__all__ = ["CompilationFacts", "CompilationIds", "FunctionFacts", "MeasuredGuards", "WrappedSkip"]


@dataclass(slots=True)
class CompilationFacts:
    """One compilation."""

    id: str
    part: str
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class MeasuredGuards:
    """The guards of one compilation."""

    made: tuple[tuple[str, str, Frames], ...]
    """Of each guard its source (`L['x']`), its code, and where it was made."""
    nanoseconds: float | None
    """The time of evaluating all of them once; None if it is not measured."""


@dataclass(frozen=True, slots=True)
class WrappedSkip:
    """A call of torch's own module or function that Dynamo left to Python, with the wrapper around it."""

    name: str
    reason: str
    call: Span | None


@dataclass(slots=True)
class FunctionFacts:
    """What Dynamo did with one user function and its resume functions; mutable."""

    name: str
    qualname: str
    file: str
    line: int
    compilations: dict[str, CompilationFacts] = field(default_factory=dict)
    skipped: dict[tuple[str, str, Span], None] = field(default_factory=dict)
    """Name, reason and span of each skipped function."""
    constants: list[DynamoConstant] = field(default_factory=list)
    guards: dict[str, MeasuredGuards] = field(default_factory=dict)
    """The guards of the latest compilation of each part."""
    numbers: dict[str, tuple[Any, Span | None]] = field(default_factory=dict)
    """Python numbers among the arguments that are constants, with the span of their first use."""
    limit_hit: bool = False
    eager_calls: int = 0
    """Calls in eager since the limit was reached, the call that reached it included."""
    calls: int = 0


class CompilationIds:
    """Dynamo's ids of compilations, made unique: after `torch.compiler.reset()` they begin at `0/0` again."""

    def __init__(self) -> None:
        self._current: dict[str, str] = {}
        self._uses: Counter[str] = Counter()

    def current(self, dynamo_id: str) -> str:
        """Return our id of the last compilation with this id of Dynamo's."""
        return self._current.get(dynamo_id, dynamo_id)

    def new(self, dynamo_id: str) -> str:
        """Return the id of a compilation that begins."""
        self._uses[dynamo_id] += 1
        count = self._uses[dynamo_id]
        self._current[dynamo_id] = f"{dynamo_id}#{count}" if count > 1 else dynamo_id
        return self._current[dynamo_id]
