"""The basic records of the report: source locations and tensors. Standard library only."""

from dataclasses import dataclass
from typing import Literal

Dimension = int | str
"""A size or stride: a number, or the symbol's name under dynamic shapes."""

Phase = Literal["forward", "backward", "inference"]


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source text: 1-based lines, 0-based UTF-8 byte columns, the end exclusive."""

    file: str
    line: int
    col: int
    end_line: int
    end_col: int

    @property
    def extent(self) -> tuple[int, int]:
        """How many lines and columns it covers: the widest of several spans has the largest."""
        return self.end_line - self.line, self.end_col - self.col

    def holds(self, other: "Span") -> bool:
        """Return True if the other range is within this one."""
        begins = (self.line, self.col) <= (other.line, other.col)
        return (
            self.file == other.file
            and begins
            and (other.end_line, other.end_col) <= (self.end_line, self.end_col)
        )


@dataclass(frozen=True, slots=True)
class Site:
    """One location in the user's source that caused a fact."""

    span: Span
    text: str
    """The source text of the span, stripped."""
    op: str | None = None
    """The operator that ran there, such as `aten.add_.Tensor`; None without one."""


@dataclass(frozen=True, slots=True)
class Related:
    """A second location that helps to understand a diagnostic."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the span by the text; an empty span inserts."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that fixes a diagnostic."""

    title: str
    edits: tuple[Edit, ...]


CostKind = Literal["peak bytes", "bytes per call", "kernel microseconds", "compile seconds"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a finding, as far as it can be counted."""

    kind: CostKind
    amount: float
    """In the unit that the kind names."""
    share: float
    """Its part of the target's total cost of that kind, 0 to 1; bytes are compared with the predicted
    peak."""


@dataclass(frozen=True, slots=True)
class FailingBackward:
    """A backward that raises when it runs, in eager too."""

    message: str
    """Autograd's own words, and the user's line."""
    site: Site | None
    """The expression whose gradient cannot be computed; None where its source is not known."""
    results: tuple[str, ...] = ()
    """Results for which it raises; empty where it does for all."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """The facts about a tensor without its values."""

    dtype: str
    """Short form: `f32`, `bf16`, `i64`, `b8`."""
    shape: tuple[Dimension, ...]
    stride: tuple[Dimension, ...]
    """In elements."""
    device: str
    requires_grad: bool
    bytes: int | None
    """Elements times element size; None when a size is symbolic without a hint."""
    subclass: str | None = None
    """The wrapper subclass: `DTensor`; None for a plain tensor."""

    def short(self) -> str:
        """Return the form shown everywhere: `f32[8, 16]`."""
        return f"{self.dtype}[{', '.join(str(size) for size in self.shape)}]"


Outcome = Literal["equal", "differs", "not verified"]
"""How a target compared with eager, in the word of every front end."""


@dataclass(frozen=True, slots=True)
class GraphId:
    """The number of a target among a script's graphs, as Dynamo counts them."""

    frame: int
    """The number of the code: a function's own, or that of the rest after a graph break in it."""
    compilation: int
    """0 the first time that this code is compiled, 1 when it is recompiled, and so on."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a target compared with eager."""

    outcome: Outcome
    text: str
    """What was compared, the first difference, or the reason why it is not verified; then details, a line
    each."""

    @property
    def ok(self) -> bool:
        return self.outcome == "equal"

    @property
    def headline(self) -> str:
        """One line: `equal: 1 value, 3 gradients`, `not verified (eager raises ValueError)`."""
        first = self.text.partition("\n")[0]
        return f"{self.outcome} ({first})" if self.outcome == "not verified" else f"{self.outcome}: {first}"

    @property
    def details(self) -> tuple[str, ...]:
        """Return the lines after the first."""
        return tuple(self.text.splitlines()[1:])
