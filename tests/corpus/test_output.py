"""What two runs print is compared number by number."""

import math

import pytest

from corpus.output import Difference, compare_output


@pytest.mark.parametrize(
    ("ours", "theirs", "tolerance"),
    [
        ("loss 0.1235", "loss 0.1234", None),
        ("loss 2", "loss 2.001", None),
        ("loss 1.235e-05", "loss 1.234e-05", None),
        ("loss 105.0", "loss 100.0", 0.05),
        ("loss nan", "loss nan", None),
        ("sizes (2, 3)", "sizes (2, 3)", None),
        ("step 1: a 0.50 b -inf", "step 1: a 0.51 b -inf", None),
    ],
)
def test_equal_as_printed(ours: str, theirs: str, tolerance: float | None) -> None:
    assert compare_output((ours,), (theirs,), tolerance) == Difference()


@pytest.mark.parametrize(
    ("ours", "theirs", "relative"),
    [
        ("loss 0.1236", "loss 0.1234", 0.0002 / 0.1236),
        ("tokens 1235", "tokens 1234", 1 / 1235),
        ("loss nan", "loss 0.1", math.inf),
        ("loss 0.1", "Loss 0.1", math.inf),
        ("loss -0.1", "loss 0.1", 2.0),
    ],
)
def test_differences(ours: str, theirs: str, relative: float) -> None:
    found = compare_output(("ready", ours), ("ready", theirs), None)
    assert (found.line, found.text) == (2, f"`{ours}` instead of `{theirs}`")
    assert found.relative == pytest.approx(relative)


def test_the_first_line_is_shown_and_the_largest_difference_counted() -> None:
    found = compare_output(("a 1.0", "a 2.0"), ("a 1.5", "a 4.0"), None)
    assert found == Difference(1, "`a 1.0` instead of `a 1.5`", 0.5)


def test_a_missing_line_differs() -> None:
    assert compare_output(("a",), ("a", "b"), None) == Difference(2, "no line instead of `b`", math.inf)
    assert compare_output(("a", "b"), ("a",), None) == Difference(2, "`b` instead of no line", math.inf)
