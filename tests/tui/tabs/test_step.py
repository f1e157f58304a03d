"""The tab of `aotlens fit`: the last result, a run when the user asks, and its answer."""

import queue
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from aotlens.model.failure import Failure
from aotlens.model.fit import FitPlan, KindBytes
from aotlens.model.memory_snapshot import (
    FailedAllocation,
    FailureMatch,
    Holder,
    MatchedHolder,
    MemorySnapshot,
)
from aotlens.model.report import Report
from tests.fit.sample import MIB, sample_fit, sample_fit_report
from tests.report.sample import sample_report
from tests.tui.driving import NARROW, FakeTracing, drive, lines, lit, rows, screen_text, settle
from tui.app import AotlensApp
from tui.fitting import CANCELLED, CommandFitting, Post, StepAnswer, StepFound
from tui.panes.step import HOW, NOTHING, ONLY_SHOWN, RUNNING
from tui.tracing import TraceTarget


class FakeFitting:
    """Answers when the test says so."""

    def __init__(self, stored: Report | None = None) -> None:
        self.stored = stored
        self.runs = 0
        self.post: Post = lambda message: None

    def find(self, post: Post) -> None:
        post(StepFound(self.stored))

    def start(self, post: Post) -> None:
        self.runs += 1
        self.post = post

    def cancel(self) -> None:
        self.post(StepAnswer(CANCELLED))


def opened(fitting: FakeFitting) -> AotlensApp:
    return AotlensApp("model.py", tracing=FakeTracing(), report=sample_report(), fitting=fitting)


@pytest.mark.rotates
def test_last_result_is_shown_without_a_run_and_rows_lead_to_the_source() -> None:
    fitting = FakeFitting(sample_fit_report())

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("F")
        assert (app.workbench.pane.TAB, fitting.runs) == ("step", 0)
        assert lines(app, "step-summary")[0].startswith("12.0 MiB at the peak of step 3: backward, aten.mm")
        assert rows(app, "step-lines")[0].endswith("saved activation | hidden * hidden.sigmoid() | 23")
        assert [row.split(" | ")[3] for row in rows(app, "step-kinds")] == [
            "saved activation",
            "optimizer state exp_avg",
            "parameter",
        ]
        assert lines(app, "step-notes")[1] == "  - the data loader has <no> workers"
        assert app.focused is app.workbench.query_one("#step-lines")
        await pilot.press("down", "down")
        assert lit(app) == ["nn.Linear(width, 4 * width)"]
        await pilot.press("home")
        assert lit(app) == ["hidden * hidden.sigmoid()"]

    drive(scenario, opened(fitting))


@pytest.mark.rotates
def test_on_a_small_screen_the_tables_have_the_room() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("F")
        shown = screen_text(app)
        assert "12.0 MiB at the peak of step 3" in shown
        assert "hidden * hidden.sigmoid()" in shown
        assert "optimizer state exp_avg" in shown

    drive(scenario, opened(FakeFitting(sample_fit_report())), NARROW)


def test_kinds_are_not_cut_where_the_bars_take_the_room() -> None:
    kinds = (
        KindBytes("saved activation", 6 * MIB, count=2),
        KindBytes("optimizer state", 3 * MIB, "exp_avg", 28),
        KindBytes("optimizer state", 3 * MIB, "exp_avg_sq", 28),
    )

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        shown = screen_text(app)
        assert "saved activation  hidden * hidden.sigmoid" in shown
        assert "optimizer state exp_avg " in shown
        assert "optimizer state exp_avg_sq " in shown

    drive(scenario, AotlensApp("fit.json", report=sample_fit_report(replace(sample_fit(), by_kind=kinds))))


@pytest.mark.rotates
def test_without_a_result_a_key_runs_the_script() -> None:
    fitting = FakeFitting()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("F")
        assert lines(app, "step-summary") == [NOTHING, HOW]
        await pilot.press("x", "x")
        assert (fitting.runs, lines(app, "step-summary")) == (1, [RUNNING])
        fitting.post(StepAnswer(replace(sample_fit_report(), incomplete="values are not known")))
        await settle(pilot)
        assert lines(app, "step-summary")[0] == "Incomplete: values are not known"
        assert len(rows(app, "step-lines")) == 3

    drive(scenario, opened(fitting))


@pytest.mark.rotates
def test_a_failed_run_says_why_and_the_result_before_it_stays() -> None:
    fitting = FakeFitting(sample_fit_report())

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("F", "x")
        fitting.post(StepAnswer(Failure("user", "the step of model.py was not measured: NameError")))
        await settle(pilot)
        assert lines(app, "step-summary")[:2] == ["the step of model.py was not measured: NameError", HOW]
        assert len(rows(app, "step-lines")) == 3

    drive(scenario, opened(fitting))


@pytest.mark.rotates
def test_escape_cancels_a_run() -> None:
    fitting = FakeFitting()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("F", "x", "escape")
        await settle(pilot)
        assert lines(app, "step-summary") == [NOTHING, HOW]

    drive(scenario, opened(fitting))


@pytest.mark.rotates
def test_a_snapshot_that_was_compared_is_shown_with_the_edits() -> None:
    holder = Holder("forward", "train.py", 7, "main", 9 << 20, 1)
    failed = FailedAllocation(2 << 20, 0, "train.py", 7, "main")
    snapshot = MemorySnapshot(0, 10 << 20, 9 << 20, 1 << 20, (holder,), failed)
    plan = FitPlan(10 << 20, 8 << 20, ("Delete `x`",))
    match = FailureMatch(
        "train.py", sample_fit().at, "at its peak", 9 << 20, 9 << 20, (MatchedHolder(holder, 9 << 20),)
    )
    match = replace(
        match, failed_bytes=2 << 20, capacity_bytes=10 << 20, step_bytes=12 << 20, avoided_by=plan
    )
    report = replace(sample_fit_report(), memory_snapshots=(snapshot,), failure_matches=(match,))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("F")
        shown = lines(app, "step-notes")
        assert shown[0] == "out of memory on device 0: 2.0 MiB were asked for at train.py:7 in main"
        assert any(line.startswith("The failure would have been avoided by these edits") for line in shown)
        assert "  - Delete `x`" in shown

    drive(scenario, opened(FakeFitting(report)))


@pytest.mark.rotates
def test_a_saved_report_opens_on_its_step_and_cannot_run() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert app.workbench.pane.TAB == "step"  # no key was pressed: every other tab is empty
        await pilot.press("x")
        assert lines(app, "step-summary")[0].startswith("12.0 MiB at the peak")

    drive(scenario, AotlensApp("fit.json", report=sample_fit_report()))

    async def without(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("F")
        assert lines(app, "step-summary") == [ONLY_SHOWN]

    drive(without)


@pytest.mark.rotates
def test_the_command_gives_the_result_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('no data')\n")
    answers: queue.Queue[object] = queue.Queue()
    fitting = CommandFitting(TraceTarget(str(tmp_path / "train.py")))
    fitting.start(answers.put)
    answer = answers.get(timeout=120)
    assert isinstance(answer, StepAnswer)
    assert isinstance(answer.answer, Failure)
    assert "no data" in answer.answer.message
