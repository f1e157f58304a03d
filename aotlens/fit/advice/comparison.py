"""Judge whether the training with an edit is the training without it.

Invariant: both ran the same number of steps from the same random numbers; what also differs between two runs
without the edit is no difference.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from aotlens.fit.advice.jobs import TrainingOutcome
from aotlens.model.fit import AdviceOutcome
from aotlens.view.quantities import counted, small_percent

__all__ = ["HALF_DISTANCE", "Judgement", "judged", "judged_in_double"]

EXACT_DISTANCE = 1e-3
"""The largest distance that rounding in the tensors' own dtype explains."""
HALF_DISTANCE = 0.1
"""The same for a step that computes in 16 bits: Adam's first steps depend on each gradient's sign."""
EXACT_PRINTED, HALF_PRINTED = 2e-3, 5e-2
"""Relative tolerances of printed numbers, which are rounded when they are printed."""
DOUBLE_DISTANCE = 1e-6
"""The largest distance that rounding in float64 explains."""
LEAST_PRINTED = 1e-5
"""The difference of printed numbers that is always allowed."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Judgement:
    """How two trainings compare."""

    outcome: AdviceOutcome | None
    """None if they differ."""
    text: str
    """What was compared, or the first difference."""


def judged(
    reference: TrainingOutcome,
    edited: TrainingOutcome,
    is_exact: bool,
    unedited: Callable[[], TrainingOutcome],
) -> Judgement:
    """Compare an edited run with the reference; `unedited` runs the script without the edit once more."""
    if edited.failure:
        return Judgement(None, f"the script fails: {edited.failure}")
    if edited.calls != reference.calls:
        steps = counted(edited.calls, "optimizer step")
        return Judgement(None, f"it makes {steps} where the script makes {reference.calls}")
    limit = buffer_limit = EXACT_DISTANCE if is_exact else HALF_DISTANCE
    lines = _different(reference.printed, edited.printed, is_exact)
    if max(edited.distance, edited.buffer_distance) > limit or lines:
        noise = unedited()
        lines = sorted(set(lines) - set(_different(reference.printed, noise.printed, is_exact)))
        limit, buffer_limit = max(limit, _noise(noise.distance)), max(limit, _noise(noise.buffer_distance))
    if edited.distance > limit:
        return Judgement(None, f"its parameters differ: {_distance_words(edited.distance)}")
    if edited.buffer_distance > buffer_limit:
        return Judgement(None, f"its buffers differ: {_distance_words(edited.buffer_distance)}")
    if lines:
        return Judgement(None, f"it prints other numbers in line {lines[0] + 1}")
    compared = _compared_words(reference, edited)
    if not compared:
        return Judgement("not compared", "the script has no optimizer and prints nothing")
    if not edited.distance and not edited.buffer_distance:
        return Judgement("equal", compared)
    return Judgement("equal within tolerance", f"{compared}; {_distance_words(edited.distance)}")


def judged_in_double(reference: TrainingOutcome, edited: TrainingOutcome) -> Judgement | None:
    """Compare both runs in float64, where rounding is far smaller than any other difference.

    Return None if that shows a difference, or if the script does not run in float64.
    """
    if reference.failure or edited.failure or edited.calls != reference.calls or not edited.parameters:
        return None
    if max(edited.distance, edited.buffer_distance) > DOUBLE_DISTANCE:
        return None
    if _different(reference.printed, edited.printed, is_exact=True):
        return None
    return Judgement("equal within tolerance", f"{_compared_words(reference, edited)}, in float64")


def _compared_words(reference: TrainingOutcome, edited: TrainingOutcome) -> str:
    """Return `26 parameters and 3 printed lines after 3 steps`; empty if there are neither."""
    parts = [counted(edited.parameters, "parameter") if edited.parameters else ""]
    parts.append(counted(len(reference.printed), "printed line") if reference.printed else "")
    compared = " and ".join(part for part in parts if part)
    return f"{compared} after {counted(edited.calls, 'step')}" if compared else ""


def _noise(distance: float) -> float:
    """Return the distance that two runs without the edit explain."""
    return 2 * distance if math.isfinite(distance) else 0.0


def _distance_words(distance: float) -> str:
    if not math.isfinite(distance):
        return "they have other shapes, or are not finite"
    return f"they are {small_percent(distance)} of the steps' own length apart"


def _different(lines: Sequence[str], others: Sequence[str], is_exact: bool) -> list[int]:
    """Return the indices of the lines whose words differ, or whose numbers differ by more than rounding."""
    tolerance = EXACT_PRINTED if is_exact else HALF_PRINTED
    pairs = zip_longest(lines, others)
    return [index for index, pair in enumerate(pairs) if not _are_close(pair[0], pair[1], tolerance)]


def _are_close(line: str | None, other: str | None, tolerance: float) -> bool:
    if line is None or other is None:
        return False
    if _NUMBER.sub("#", line) != _NUMBER.sub("#", other):
        return False
    pairs = zip(_NUMBER.findall(line), _NUMBER.findall(other), strict=True)
    return all(
        math.isclose(float(first), float(second), rel_tol=tolerance, abs_tol=LEAST_PRINTED)
        for first, second in pairs
    )
