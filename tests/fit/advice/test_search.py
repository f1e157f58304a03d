"""The search for edits, with invented runs in place of real ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
import torch

from aotlens.fit.advice.jobs import NamesOutcome, TrainingOutcome
from aotlens.fit.advice.search import Advised, advise
from aotlens.fit.advice.target import Goal, PeakTarget
from aotlens.fit.advice.trials import Trials, trials
from aotlens.fit.floor import UndividedCall, floor_of, is_cast, is_undivided
from aotlens.fit.job import FitJob
from aotlens.model.fit import Fit, FitAllocation, FitKind, FitMoment, FitPlan, FitPoint, KindBytes, PhasePeak
from aotlens.model.source import Span
from aotlens.view.step_memory.advice import plan_lines, plan_words
from tests.fit.advice.test_rules import NAMES, TEXT

SAVED = {"checkpoint(block": 20, "fused=True": 10, "memory_budget": 15, "x.chunk(2)": 25, "x.chunk(4)": 35}
"""What each edit saves of 100 bytes, by its text."""
FLOPS = {"checkpoint(block": 30, "memory_budget": 10}


def fit_of(text: str, more: int = 0) -> Fit:
    saved = more + sum(saved for part, saved in SAVED.items() if part in text)
    flops = 100 + sum(flops for part, flops in FLOPS.items() if part in text)
    point = FitPoint(0, 100 - saved, "backward")
    return Fit(
        100 - saved,
        FitMoment("backward"),
        curve=(point,),
        step=3,
        is_periodic=True,
        step_flops=flops,
        step_operators=20 if "_part" in text else 10,
    )


@dataclass(slots=True)
class InventedTrials:
    """Runs that are computed from the text; edits with `different` in them change the training."""

    different: str = "no text"
    distance: float = 0.5
    """How far such edits are from the reference, in float32."""
    together: dict[tuple[str, str], int] = field(default_factory=dict)
    """What two edits save beside what each saves alone."""
    trained: list[str] = field(default_factory=list)
    floor_bytes: int = 0
    """What exists at once, with every edit."""
    ran: list[str] = field(default_factory=list)

    def names(self) -> NamesOutcome:
        return NAMES

    def import_libraries(self, names: Sequence[str], unedited: Fit) -> None:
        assert names == NAMES.libraries

    def start_fits(self, each: Iterable[Mapping[str, str]]) -> None:
        for texts in each:
            assert texts["train.py"] != TEXT

    def fit(self, texts: Mapping[str, str]) -> Fit:
        text = texts["train.py"]
        more = sum(saved for parts, saved in self.together.items() if all(part in text for part in parts))
        self.ran.append(text)
        return self.with_floor(fit_of(text, more))

    def with_floor(self, fit: Fit) -> Fit:
        return replace(fit, floor=(KindBytes("parameter", self.floor_bytes),))

    def train(
        self,
        calls: int,
        texts: Mapping[str, str] | None = None,
        is_reference: bool = False,
        is_double: bool = False,
    ) -> TrainingOutcome:
        text = (texts or {}).get("train.py", "")
        self.trained.append(text)
        is_different = self.different in text and not is_double
        return TrainingOutcome("", calls, 2, self.distance if is_different else 0.0)


def advised(target_bytes: int | None, different: str = "no text", *, is_whole: bool = False) -> Advised:
    return advised_by(InventedTrials(different), target_bytes, is_whole)


def advised_by(trials: InventedTrials, target_bytes: int | None, is_whole: bool = False) -> Advised:
    target = None if target_bytes is None else PeakTarget(target_bytes)
    texts = {"train.py": TEXT}
    base = trials.with_floor(fit_of(TEXT))
    return advise(cast("Trials", trials), texts, base, Goal(target, is_whole), lambda line: None)


@pytest.mark.parametrize(
    ("target_bytes", "kinds"),
    [(90, ["fused"]), (75, ["2 micro"]), (65, ["4 micro"]), (55, ["fused", "4 micro"])],
)
def test_a_plan_is_the_cheapest_that_reaches_the_target(target_bytes: int, kinds: list[str]) -> None:
    plan = advised(target_bytes).plan
    assert plan is not None
    assert plan.peak_bytes == target_bytes
    assert [kind in title for kind, title in zip(kinds, plan.titles, strict=True)] == [True] * len(kinds)


def test_an_edit_that_changes_the_training_is_no_part_of_a_plan() -> None:
    result = advised(60, different="_part")
    assert result.plan is not None
    assert result.plan.is_reached
    assert "chunk" not in result.texts["train.py"]
    assert any("micro batches" in title for title, _ in result.rejected)


def test_rounding_that_the_optimizer_amplifies_is_no_difference() -> None:
    plan = advised_by(InventedTrials("_part", distance=0.02), 75).plan
    assert plan is not None
    assert "2 micro" in plan.titles[0]
    assert plan.compared.endswith("after 3 steps, in float64")


def test_an_edit_that_lowers_nothing_alone_may_lower_the_peak_beside_others() -> None:
    together = {("checkpoint_sequential(", "fused=True"): 10}
    assert advised(12).plan != (plan := advised_by(InventedTrials(together=together), 12).plan)
    assert plan is not None
    assert plan.is_reached
    assert any("segments" in title for title in plan.titles)


def test_a_target_out_of_reach_is_tried_in_one_order() -> None:
    searches = [InventedTrials(floor_bytes=floor_bytes) for floor_bytes in (12, 13)]
    plans = [advised_by(trials, 12).plan for trials in searches]
    assert plans[0] is not None
    assert plans[1] is not None
    assert plans[1].peak_bytes == plans[0].peak_bytes
    assert len(searches[1].ran) < len(searches[0].ran)


def test_a_step_within_the_backward_is_compared_before_it_is_combined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SAVED, "step_in_backward(optimizer)", 30)
    trials = InventedTrials("step_in_backward(optimizer)")
    result = advised_by(trials, 30)
    assert any("within the backward" in title for title, _ in result.rejected)
    assert not any("step_in_backward(optimizer)" in text and "fused=True" in text for text in trials.ran)


def test_a_target_counts_the_excess_of_every_line_of_a_phase() -> None:
    first, second = Span("train.py", 1, 0, 1, 0), Span("train.py", 2, 0, 2, 0)
    curve = (
        FitPoint(0, 80, "backward", span=first),
        FitPoint(1, 90, "backward", span=first),
        FitPoint(2, 80, "backward", span=second),
        FitPoint(3, 100, "optimizer", span=first),
    )
    fit = Fit(100, FitMoment("optimizer"), curve=curve)
    assert PeakTarget(75).excess_bytes(fit) == 15 + 5 + 25
    assert PeakTarget(95).excess_bytes(fit) == 5
    assert PeakTarget(100).excess_bytes(fit) == 0


def test_an_edit_of_a_phase_that_is_low_enough_is_not_run() -> None:
    phases = (PhasePeak("backward", 100, 1), PhasePeak("optimizer", 80, 2))
    trials, lines = InventedTrials(), list[str]()
    base = replace(fit_of(TEXT), phases=phases)
    advise(
        cast("Trials", trials), {"train.py": TEXT}, base, Goal(PeakTarget(85), is_whole=False), lines.append
    )
    assert not [line for line in lines if "fused" in line]
    advise(
        cast("Trials", trials), {"train.py": TEXT}, base, Goal(PeakTarget(75), is_whole=False), lines.append
    )
    assert [line for line in lines if "fused" in line]


def test_a_target_above_the_peak_needs_no_run() -> None:
    result = advised(100)
    assert result.plan is not None
    assert result.plan.is_reached
    assert plan_words(result.plan) == "Target 100 B is reached without edits: 100 B"
    assert (result.texts, result.advice) == ({}, ())


def test_the_floor_is_what_exists_throughout_and_the_most_gradients() -> None:
    def made(kind: FitKind, size_bytes: int, created: int, freed: int | None) -> FitAllocation:
        return FitAllocation(size_bytes, kind, "forward", created, freed)

    allocations = (
        made("parameter", 40, -1, None),
        made("gradient", 30, 1, 4),
        made("gradient", 20, 2, None),
        made("gradient", 10, 5, None),
        made("temporary", 90, -1, 3),
    )
    floor, at = floor_of(allocations)
    assert at is None
    assert [(row.kind, row.bytes, row.count) for row in floor] == [("gradient", 50, 2), ("parameter", 40, 1)]
    plan = FitPlan(80, 180, remaining=(KindBytes("temporary", 90),), floor=floor)
    expected = "  out of reach: 90 B (50 B gradient, 40 B parameter) exist at once"
    assert list(plan_lines(plan))[-1] == expected


def test_the_floor_has_what_a_call_needs_that_parts_of_the_batch_cannot_replace() -> None:
    parameter = FitAllocation(40, "parameter", "setup", -1, None)
    first, last = (
        FitAllocation(30, "gradient", "backward", 1, 4),
        FitAllocation(20, "gradient", "backward", 3, None),
    )
    operand = FitAllocation(50, "saved activation", "forward", 0, 9)
    allocations, lives = (parameter, first, last, operand), (object(), object(), object(), object())
    allocation_of = dict(zip(map(id, lives), allocations, strict=True))
    at = FitMoment("backward", "aten.native_batch_norm_backward.default", moment=6)
    call = UndividedCall(6, at, (lives[0], lives[3], lives[3]))
    floor, needed_at = floor_of(allocations, [call], allocation_of)
    assert needed_at is at
    assert [(row.kind, row.bytes) for row in floor] == [
        ("saved activation", 50),
        ("parameter", 40),
        ("gradient", 20),
    ]
    plan = FitPlan(80, 180, remaining=(KindBytes("temporary", 90),), floor=floor, floor_at=at)
    assert list(plan_lines(plan))[-1].endswith("exist at once (backward, aten.native_batch_norm_backward)")
    small = UndividedCall(6, at, (lives[2],))
    assert floor_of(allocations, [small], allocation_of)[1] is None


def test_batch_norm_of_the_training_and_added_gradients_are_not_divided() -> None:
    rows, ones = torch.randn(4, 3), torch.ones(3)
    norm = torch.ops.aten.native_batch_norm.default
    assert is_undivided(norm, (rows, ones, ones, None, None, True, 0.1, 1e-5), {}, "")
    assert not is_undivided(norm, (rows, ones, ones, ones, ones, False, 0.1, 1e-5), {}, "")
    added = torch.ops.aten.add_.Tensor
    assert is_undivided(added, (rows, rows), {}, "torch::autograd::AccumulateGrad")
    assert not is_undivided(added, (rows, rows), {}, "AddBackward0")
    multiplied = torch.ops.aten.addcmul_.default
    assert not is_undivided(multiplied, (rows, rows, rows), {}, "torch::autograd::AccumulateGrad")
    assert not is_undivided(torch.ops.aten.detach.default, (rows,), {}, "torch::autograd::AccumulateGrad")


def test_the_floor_has_a_gradient_in_both_dtypes_while_it_is_cast() -> None:
    parameter = FitAllocation(40, "parameter", "setup", -1, None)
    half = FitAllocation(20, "temporary", "backward", 0, 2)
    gradient = FitAllocation(40, "gradient", "backward", 1, None)
    lives = object(), object(), object()
    allocations = parameter, half, gradient
    allocation_of = dict(zip(map(id, lives), allocations, strict=True))
    at = FitMoment("backward", "aten._to_copy.default", moment=1)
    floor, needed_at = floor_of(allocations, [UndividedCall(1, at, lives[1:], is_cast=True)], allocation_of)
    assert (needed_at, sum(row.bytes for row in floor)) == (at, 100)
    activation = UndividedCall(1, at, (lives[2], lives[1]), is_cast=True)
    assert floor_of(allocations, [activation], allocation_of)[1] is None
    rows, copy = torch.randn(4, 3), torch.ops.aten._to_copy.default
    assert is_cast(copy, (rows,), {"dtype": torch.float16})
    assert not is_cast(copy, (rows,), {"dtype": torch.float32})
    assert not is_cast(copy, (rows,), {})


@pytest.mark.rotates
def test_a_target_out_of_reach_gets_the_lowest_combination() -> None:
    result = advised(1)
    assert result.plan is not None
    assert not result.plan.is_reached
    assert result.plan.peak_bytes == 100 - 20 - 10 - 15 - 35


def test_advice_is_compared_and_sorted_by_what_it_saves() -> None:
    result = advised(None, is_whole=True)
    saved = [row.saved_bytes for row in result.advice if row.is_tested]
    assert saved == sorted(saved, reverse=True)
    assert {row.outcome for row in result.advice if row.is_tested} == {"equal"}
    assert result.plan is None


def test_of_one_group_advice_has_what_saves_more_or_costs_less() -> None:
    """Two micro batches cost as much as four, and save less."""
    titles = [row.title for row in advised(None, is_whole=True).advice]
    assert any("4 micro batches" in title for title in titles)
    assert not any("2 micro batches" in title for title in titles)
    budgets = [title for title in titles if "save at most" in title]
    assert len(budgets) == 1


def test_a_server_that_is_killed_gives_no_result() -> None:
    with trials(FitJob("none.py")) as killed:
        killed.process.kill()
        killed.process.wait()
        assert killed.fit({"none.py": ""}) is None
        assert killed.train(1).failure == "it ends without a result, or takes longer than 120 s"
