"""Whether an edited training is the same training, from what two runs recorded."""

import math

import pytest
import torch

from aotlens.fit.advice.comparison import judged, judged_in_double
from aotlens.fit.advice.jobs import TrainingOutcome
from aotlens.fit.advice.training import distance

REFERENCE = TrainingOutcome("", 3, 2, 0.0, ("step 0: loss 1.25",))


def never() -> TrainingOutcome:
    raise AssertionError("nothing differs, so the script need not run again")


def outcome_of(edited: TrainingOutcome, *, is_exact: bool = True) -> str | None:
    return judged(REFERENCE, edited, is_exact, lambda: REFERENCE).outcome


def test_the_same_values_are_equal() -> None:
    judgement = judged(REFERENCE, REFERENCE, True, never)
    assert (judgement.outcome, judgement.text) == ("equal", "2 parameters and 1 printed line after 3 steps")


@pytest.mark.parametrize(
    ("apart", "exact", "half"), [(1e-6, True, True), (0.02, False, True), (0.5, False, False)]
)
def test_tolerance_depends_on_the_dtype(apart: float, exact: bool, half: bool) -> None:
    edited = TrainingOutcome("", 3, 2, apart, REFERENCE.printed)
    within = "equal within tolerance"
    assert outcome_of(edited) == (within if exact else None)
    assert outcome_of(edited, is_exact=False) == (within if half else None)


@pytest.mark.parametrize(
    "edited",
    [
        TrainingOutcome("RuntimeError: shapes"),
        TrainingOutcome("", 6, 2, 0.0, REFERENCE.printed),
        TrainingOutcome("", 3, 2, 0.0, ("step 0: loss 2.5",)),
        TrainingOutcome("", 3, 2, 0.0, ()),
        TrainingOutcome("", 3, 2, math.inf, REFERENCE.printed),
        TrainingOutcome("", 3, 2, 0.0, REFERENCE.printed, buffer_distance=0.5),
    ],
)
def test_failures_other_steps_other_words_and_other_shapes_differ(edited: TrainingOutcome) -> None:
    assert outcome_of(edited) is None


def test_what_differs_without_the_edit_too_does_not_count() -> None:
    noise = TrainingOutcome("", 3, 2, 0.2, ("step 0: 7 seconds",))
    edited = TrainingOutcome("", 3, 2, 0.3, ("step 0: 9 seconds",))
    reference = TrainingOutcome("", 3, 2, 0.0, ("step 0: 8 seconds",))
    assert judged(reference, edited, True, lambda: noise).outcome == "equal within tolerance"


@pytest.mark.parametrize(
    ("edited", "is_equal"),
    [
        (TrainingOutcome("", 3, 2, 1e-9, REFERENCE.printed), True),
        (TrainingOutcome("", 3, 2, 1e-4, REFERENCE.printed), False),
        (TrainingOutcome("", 3, 2, 1e-9, ("step 0: loss 2.5",)), False),
        (TrainingOutcome("", 3, 2, 1e-9, REFERENCE.printed, buffer_distance=1e-4), False),
        (TrainingOutcome("RuntimeError: expected Float"), False),
        (TrainingOutcome("", 6, 2, 0.0, REFERENCE.printed), False),
    ],
)
def test_float64_leaves_only_real_differences(edited: TrainingOutcome, is_equal: bool) -> None:
    judgement = judged_in_double(REFERENCE, edited)
    assert (judgement is not None) == is_equal
    if judgement is not None:
        assert judgement.text == "2 parameters and 1 printed line after 3 steps, in float64"


def test_distance_is_relative_to_how_far_the_steps_move() -> None:
    before, after = {"0.0": torch.zeros(3)}, {"0.0": torch.full((3,), 2.0)}
    assert distance(before, after, {"0.0": torch.full((3,), 3.0)}) == 0.5
    assert distance(before, after, after) == 0.0
    assert distance(before, after, {"0.0": torch.zeros(4)}) == math.inf
