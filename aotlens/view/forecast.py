"""The words and rows of a forecast, for every front end.

| axis | words |
|---|---|
| compiled once for all values | `no other compilation` |
| a guard fails | ``2 compilations: `x.shape[0] == 4` fails with 5`` |
| a value fails in eager too | `fails in eager too` |
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aotlens.model.dynamo import Dynamo
from aotlens.model.recompilations import Cause, Forecast, ForecastAxis
from aotlens.model.source import Span
from aotlens.view.quantities import counted

__all__ = [
    "CallRow",
    "FailedGuard",
    "axis_title",
    "call_rows",
    "failed_guards",
    "forecast_summary",
    "recompiling",
    "remedy_words",
]


@dataclass(frozen=True, slots=True)
class FailedGuard:
    """A guard that fails for one or more values of an axis."""

    guard: str
    values: tuple[str, ...]
    """The values with which it fails."""
    span: Span | None
    function: str

    @property
    def words(self) -> str:
        """``the guard `self.step == 0` fails with 1, 2``."""
        shown = f" with {', '.join(self.values)}" if self.values else ""
        return f"`{self.guard}` fails{shown}"


@dataclass(frozen=True, slots=True)
class CallRow:
    """One requested call of an axis."""

    value: str
    words: str
    span: Span | None


def forecast_summary(dynamo: Dynamo) -> str:
    """`forecast from the first call of 2 functions: 3 of 14 changes recompile`."""
    axes = [axis for entry in dynamo.forecasts for axis in entry.axes if not axis.error]
    again = sum(len(recompiling(entry)) for entry in dynamo.forecasts)
    functions = counted(len({entry.function for entry in dynamo.forecasts}), "function")
    if len(axes) == 1 and axes[0].kind == "asked":
        axis = axes[0]
        calls = counted(1 + len(axis.calls), "call")
        return f"{calls} of {dynamo.forecasts[0].function} need {counted(axis.compilations, 'compilation')}"
    return f"forecast from the first call of {functions}: {again} of {counted(len(axes), 'change')} recompile"


def axis_title(axis: ForecastAxis) -> str:
    """`x.shape[0], with y.shape[0]: 8 → 9, 7, 16`."""
    others = f", with {', '.join(axis.with_names)}" if axis.with_names else ""
    values = ", ".join(call.value for call in axis.calls)
    if axis.kind == "repeat":
        return axis.name
    return (
        f"{axis.name}{others}: {axis.recorded} → {values}"
        if values
        else f"{axis.name}{others}: {axis.recorded}"
    )


def failed_guards(forecast: Forecast, axis: ForecastAxis) -> tuple[FailedGuard, ...]:
    """Return the guards that fail, in the order of the calls, each once for all of its values.

    A guard that also fails when the same call is repeated does not belong to the axis.
    """
    always = () if axis.kind in ("repeat", "asked") else _repeated(forecast)
    groups: dict[tuple[str, str], list[Cause]] = {}
    for call in axis.calls:
        for cause, function in zip(call.causes, call.functions, strict=True):
            if (cause.name, function) not in always:
                key = cause.guard if cause.kind == "size" else cause.name
                groups.setdefault((key, function), []).append(cause)
    return tuple(
        FailedGuard(
            causes[0].guard,
            tuple(dict.fromkeys(cause.new for cause in causes if cause.new)),
            causes[0].span,
            function,
        )
        for (_, function), causes in groups.items()
    )


def _repeated(forecast: Forecast) -> frozenset[tuple[str, str]]:
    return frozenset(
        (cause.name, function)
        for axis in forecast.axes
        if axis.kind == "repeat"
        for call in axis.calls
        for cause, function in zip(call.causes, call.functions, strict=True)
    )


def call_rows(axis: ForecastAxis) -> Iterator[CallRow]:
    """Every call, the recorded one first."""
    yield CallRow(axis.recorded, f"recorded: {counted(axis.first_compilations, 'compilation')}", None)
    for call in axis.calls:
        if not call.compilations:
            yield CallRow(call.value, "no compilation", None)
            continue
        cause = call.causes[0] if call.causes else None
        words = counted(call.compilations, "compilation")
        if cause is not None:
            words += f": `{cause.guard}` fails" + (f" with {cause.new}" if cause.new else "")
        yield CallRow(call.value, words, None if cause is None else cause.span)
    for value in axis.left_out:
        yield CallRow(value, "fails in eager too", None)


def remedy_words(axis: ForecastAxis) -> str:
    """Return the smallest change that leaves the fewest compilations; empty where no change helps."""
    if not axis.remedies:
        return ""
    best = axis.remedies[-1]  # each leaves fewer than the one before
    return f"{best.text} reduces {counted(axis.compilations, 'compilation')} to {best.compilations}"


def recompiling(forecast: Forecast) -> tuple[ForecastAxis, ...]:
    """Return the axes with a value that fails a guard, those with the most compilations first."""
    axes = [axis for axis in forecast.axes if not axis.error and failed_guards(forecast, axis)]
    return tuple(sorted(axes, key=lambda axis: axis.first_compilations - axis.compilations))
