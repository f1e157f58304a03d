"""Which guards fail for calls with other arguments, and the smallest change against it.  Stdlib only.

Invariant: every compilation named here was made by Dynamo, for a varied copy of a recorded call.

| question | record |
|---|---|
| what is asked of one compiled function | `Forecast` |
| one thing that varies: a size, a dtype, the mode, a number | `ForecastAxis` |
| one value of it: does the call compile, and because of which guard | `ForecastCall` |
| the smallest change after which fewer compilations remain | `Remedy` |
"""

from dataclasses import dataclass
from typing import Literal

from aotlens.report.cause_records import Cause
from aotlens.report.source_records import Span

__all__ = ["AxisKind", "Forecast", "ForecastAxis", "ForecastCall", "Remedy", "RemedyKind"]

AxisKind = Literal[
    "size", "rank", "length", "dtype", "number", "value", "None", "requires_grad", "mode", "repeat", "asked"
]
"""What varies; `repeat` is the same call made again, `asked` what `--vary` names."""

RemedyKind = Literal["mark_dynamic", "dynamic", "tensor"]


@dataclass(frozen=True, slots=True)
class ForecastCall:
    """A call with one value of what varies."""

    value: str
    """As the user writes it: `9`, `float64`, `eval`."""
    compilations: int
    """Made by this call, those of resume functions included."""
    causes: tuple[Cause, ...] = ()
    """The guards that failed, one for each of these compilations."""
    functions: tuple[str, ...] = ()
    """The function of each cause."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the same calls need fewer compilations; it was tried."""

    kind: RemedyKind
    text: str
    """What to write: `torch._dynamo.mark_dynamic(x, 0)`."""
    compilations: int
    """Of all calls, with the change."""


@dataclass(frozen=True, slots=True)
class ForecastAxis:
    """One thing that varies, from a fresh start of Dynamo."""

    name: str
    """`x.shape[0]`, `k`, `train or eval`, `the same call again`."""
    kind: AxisKind
    with_names: tuple[str, ...]
    """What must change with it, so that the call works in eager: `y.shape[0]`."""
    recorded: str
    """The value in the recorded call, which is made first."""
    calls: tuple[ForecastCall, ...]
    """In the order in which they were made."""
    left_out: tuple[str, ...]
    """Values that fail in eager as well, so that they are no calls of this function."""
    first_compilations: int
    """Of the recorded call: the function and its resume functions."""
    remedies: tuple[Remedy, ...] = ()
    """The smallest change first; only those that save compilations."""
    error: str = ""
    """Why nothing is known: Dynamo failed, or it took too long."""

    @property
    def compilations(self) -> int:
        """Of all calls together."""
        return self.first_compilations + sum(call.compilations for call in self.calls)

    @property
    def failed(self) -> tuple[Cause, ...]:
        """The guards that fail."""
        return tuple(cause for call in self.calls for cause in call.causes)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is to be expected of one compiled function, from its first call."""

    function: str
    """Its qualified name."""
    span: Span
    """Its first line."""
    arguments: tuple[str, ...]
    """Of the recorded call: `x: f32[8, 16]`, `k = 3`."""
    axes: tuple[ForecastAxis, ...]
    is_complete: bool = True
    """False where the limit of time left axes untried."""
