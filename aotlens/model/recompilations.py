"""Why a function was recompiled, and which guards would fail with other arguments. Standard library only."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.source import Span

__all__ = ["AxisKind", "Cause", "CauseKind", "Forecast", "ForecastAxis", "ForecastCall", "Remedy"]

CauseKind = Literal[
    "size",  # a tensor has another size
    "size relation",  # sizes no longer have the relation that the code tested
    "rank",  # a tensor has more or fewer dimensions
    "stride",
    "dtype",
    "device",
    "requires_grad",
    "dispatch keys",  # a subclass, an inference tensor, a conjugate view
    "number",  # a Python number has another value
    "value",  # any other plain value: a string, a bool, an enum
    "length",  # a list, tuple or dict has more or fewer entries
    "type",  # a value has another type: None instead of a tensor
    "object",  # the name has another object
    "keys",  # a dict has other keys
    "mode",  # grad mode, autocast, default dtype, number of threads
    "freed",  # an object that the compilation depends on was freed
    "backend",  # `torch.compile` was called with another backend object
    "other",
]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a function was recompiled: the guard that failed."""

    guard: str
    """The condition over the user's names: `x.shape[0] == 4`, `self.step == 0`."""
    kind: CauseKind
    name: str
    """The value that changed, as the user writes it: `x.shape[0]`, `self.step`, `grad mode`."""
    old: str
    """The value of the earlier compilation; empty where it is not known."""
    new: str
    """The value of the call that failed; empty where it is not known."""
    span: Span | None
    """The location of the guard; None where no line of the user's has one."""
    call: Span | None = None
    """The call that failed, where Dynamo sees the user's line."""
    against: str = ""
    """The compilation whose guards the call nearly passes: `0/1`."""


AxisKind = Literal[
    "size", "rank", "length", "dtype", "number", "value", "None", "requires_grad", "mode", "repeat", "asked"
]
"""The kind of variation; `repeat` is the same call again, `asked` the one named by `--vary`."""

RemedyKind = Literal["mark_dynamic", "dynamic", "tensor"]


@dataclass(frozen=True, slots=True)
class ForecastCall:
    """A call with one value of the axis."""

    value: str
    """The value as the user writes it: `9`, `float64`, `eval`."""
    compilations: int
    """Made by this call, those of resume functions included."""
    causes: tuple[Cause, ...] = ()
    """The guards that failed, one for each of these compilations."""
    functions: tuple[str, ...] = ()
    """The function of each cause."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A tried change after which the same calls need fewer compilations."""

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
    """In the order of the calls."""
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
        """Return the guards that fail."""
        return tuple(cause for call in self.calls for cause in call.causes)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected recompilations of one compiled function, from its first call."""

    function: str
    """Its qualified name."""
    span: Span
    """Its first line."""
    arguments: tuple[str, ...]
    """Of the recorded call: `x: f32[8, 16]`, `k = 3`."""
    axes: tuple[ForecastAxis, ...]
    is_complete: bool = True
    """False where the time limit left axes untried."""
