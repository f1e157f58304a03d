"""Forecast one recorded call: each axis under Dynamo, and the smallest change that helps.

Invariant: an axis is reported only if at least one of its values works in eager; a remedy only if the same
calls, made with it, needed fewer compilations.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from aotlens.forecast.axes import Axis, Way, automatic_axes, requested_axis
from aotlens.forecast.fork import ForkError
from aotlens.forecast.recorded_call import Edit, RecordedCall, Step, marked
from aotlens.forecast.trial import Series, Settings, compiled_series, works_in_eager
from aotlens.forecast.vary import VariedName
from aotlens.model.recompilations import Forecast, ForecastAxis, Remedy

__all__ = ["Budget", "forecast_of"]

LONGEST_SERIES = 60.0
"""Seconds for one series of calls."""
RECORDED = Step("", {})


@dataclass(slots=True)
class Budget:
    """The seconds left for the forecasts of a script; mutable."""

    seconds: float
    started: float | None = None

    @property
    def left(self) -> float:
        if self.started is None:
            self.started = time.monotonic()
        return self.seconds - (time.monotonic() - self.started)


def forecast_of(call: RecordedCall, variations: Sequence[VariedName], budget: Budget) -> Forecast:
    """Return the effect of other arguments; raises VaryError if the call lacks what `variations` names."""
    axes: Iterable[Axis] = [requested_axis(call, variations)] if variations else automatic_axes(call)
    results: list[ForecastAxis] = []
    is_complete = True
    for axis in axes:
        if budget.left <= 0:
            is_complete = False
            break
        result = _evaluated(call, axis, budget)
        if result is not None:
            results.append(result)
    return Forecast(call.qualname, call.span, call.described(), tuple(results), is_complete)


def _evaluated(call: RecordedCall, axis: Axis, budget: Budget) -> ForecastAxis | None:
    """Evaluate an axis; None if no value of it works in eager, unless it was requested."""
    seconds = min(LONGEST_SERIES, max(1.0, budget.left))
    row = ForecastAxis(
        name=axis.name,
        kind=axis.kind,
        with_names=(),
        recorded=axis.recorded,
        calls=(),
        left_out=(),
        first_compilations=0,
    )
    try:
        way, works = _way(call, axis, seconds)
    except ForkError as error:
        return replace(row, error=str(error))
    steps = [step for step, is_call in zip(way.steps, works, strict=True) if is_call]
    invalid = tuple(step.label for step, is_call in zip(way.steps, works, strict=True) if not is_call)
    if not steps and axis.kind != "asked":
        return None
    row = replace(row, with_names=way.with_names, left_out=invalid)
    try:
        settings = Settings(seconds, keeps_state=axis.kind == "repeat")
        series = compiled_series(call, [RECORDED, *steps], settings)
    except ForkError as error:
        return replace(row, error=str(error))
    return replace(
        row,
        calls=series.calls,
        first_compilations=series.first_compilations,
        remedies=tuple(_remedies(call, way, steps, series, seconds)),
    )


def _way(call: RecordedCall, axis: Axis, seconds: float) -> tuple[Way, tuple[bool, ...]]:
    """Return the way of which most values work in eager, the first one of equals."""
    tried = [(way, works_in_eager(call, way.steps, seconds)) for way in axis.ways[:1]]
    for way in axis.ways[1:]:
        if not all(tried[-1][1]):
            tried.append((way, works_in_eager(call, way.steps, seconds)))
    return max(tried, key=lambda entry: sum(entry[1]))


def _remedies(
    call: RecordedCall, way: Way, steps: Sequence[Step], series: Series, seconds: float
) -> Iterator[Remedy]:
    """Yield the changes with which fewer compilations are left, the smallest first, one of equals."""
    least = series.compilations
    if least == series.first_compilations:
        return
    for remedy, changed, is_dynamic in _candidates(call, way, steps):
        try:
            count = compiled_series(call, changed, Settings(seconds, is_dynamic)).compilations
        except ForkError:
            continue  # a constraint that does not hold, or a tensor in place of a required number
        if count < least:
            least = count
            yield Remedy(remedy.kind, remedy.text, count)


def _candidates(
    call: RecordedCall, way: Way, steps: Sequence[Step]
) -> Iterator[tuple[Remedy, list[Step], bool]]:
    calls = [RECORDED, *steps]
    if way.sizes:
        dims: dict[str, set[int]] = {}
        for name, dim in way.sizes:
            dims.setdefault(name, set()).add(dim)
        text = "; ".join(
            f"torch._dynamo.mark_dynamic({name}, {dim})" for name, dim in dict.fromkeys(way.sizes)
        )
        yield Remedy("mark_dynamic", text, 0), [_marking(step, dims) for step in calls], False
        yield Remedy("dynamic", "torch.compile(…, dynamic=True)", 0), calls, True
    leaves = call.leaves
    varied = {name for step in steps for name in step.edits}
    numbers = [name for name in varied if type(leaves.get(name)) in (int, float)]
    if numbers and not way.sizes:
        changed = [_with_tensors(step, numbers, leaves) for step in calls]
        text = ", ".join(f"{name}=torch.tensor({name})" for name in numbers)
        yield Remedy("tensor", text, 0), changed, False


def _marking(step: Step, dims: dict[str, set[int]]) -> Step:
    edits = {name: marked(step.edits.get(name), frozenset(sizes)) for name, sizes in dims.items()}
    return Step(step.label, {**step.edits, **edits}, step.modes)


def _with_tensors(step: Step, names: Sequence[str], leaves: dict[str, object]) -> Step:
    edits = {name: _as_tensor(step.edits.get(name)) for name in names}
    return Step(step.label, {**step.edits, **edits}, step.modes)


def _as_tensor(edit: Edit | None) -> Edit:
    return lambda value: torch.tensor(value if edit is None else edit(value))
