"""What every record of the report is made of: places in the source, and tensors.  Stdlib only."""

from dataclasses import dataclass

Dimension = int | str
"""A size or stride: a number, or the symbol's name under dynamic shapes."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source text: 1-based lines, 0-based UTF-8 byte columns, the end exclusive."""

    file: str
    line: int
    col: int
    end_line: int
    end_col: int

    def holds(self, other: "Span") -> bool:
        """Whether the other range lies within this one."""
        begins = (self.line, self.col) <= (other.line, other.col)
        return (
            self.file == other.file
            and begins
            and (other.end_line, other.end_col) <= (self.end_line, self.end_col)
        )


@dataclass(frozen=True, slots=True)
class Site:
    """One place in the user's source that caused a fact."""

    span: Span
    text: str
    """The source text of the span, stripped."""
    op: str | None = None
    """The operator that ran there, as `aten.add_.Tensor`; None when no operator is meant."""


@dataclass(frozen=True, slots=True)
class FailingBackward:
    """A backward that raises when it runs, in eager too."""

    message: str
    """Autograd's own words, and the user's line."""
    site: Site | None
    """The expression whose gradient cannot be computed; None where its source is not known."""
    results: tuple[str, ...] = ()
    """Results for which it does; empty where it does for all."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """What is known of a tensor without its values."""

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
        """The form shown everywhere: `f32[8, 16]`."""
        return f"{self.dtype}[{', '.join(str(size) for size in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a target compared with eager."""

    ok: bool
    text: str
    """What was compared, or the first thing that differs; further lines tell what was left out."""
    stopped: bool = False
    """Nothing was compared: the code could not be run here, which says nothing about it."""
