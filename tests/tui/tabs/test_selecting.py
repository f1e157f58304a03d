"""The selection of the Saved tab: marks, totals while it changes, and the files that make it permanent."""

from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from aotlens.model import Report, Target
from aotlens.model.failure import Failure
from aotlens.model.report import Edit, Fix, Span, Totals, WhatIf
from tests.report.sample import sample_report, training_target
from tests.report.sample_partition import chosen_partition
from tests.tui.driving import FakeTracing, drive, lines, select, settle, table
from tests.tui.tabs.test_tradeoffs import layered_target
from tui.app import AotlensApp
from tui.messages import EditsTried, SelectionWeighed
from tui.screens import ConfirmScreen

BEFORE, AFTER = Totals(16384, 10240, 32768), Totals(8192, 12288, 24576)
LAYERS = "recompute:wide_0,recompute:wide_1,recompute:wide_2"
LARGE = "recompute:gelu"


def answered(target: Target, change: str) -> Target:
    """The target as the worker answers: with nothing but its totals."""
    assert target.partition is not None
    partition = replace(target.partition, saved=(), recomputed=(), what_if=(WhatIf(change, BEFORE, AFTER),))
    return replace(target, stages=(), kernels=(), partition=partition)


def marks(app: AotlensApp, name: str) -> str:
    shown = table(app, name)
    return "".join(shown.row_mark(index) for index in range(shown.row_count))


async def open_saved(app: AotlensApp, pilot: Pilot[int], tracing: FakeTracing, report: Report) -> None:
    tracing.answer(report)
    await settle(pilot)
    await pilot.press("5", "home")


def report_of(target: Target) -> Report:
    return replace(sample_report(), targets=(target,))


@pytest.mark.rotates
def test_a_folded_row_selects_its_layers_and_the_totals_follow() -> None:
    tracing, target = FakeTracing(), layered_target()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await open_saved(app, pilot, tracing, report_of(target))
        assert not app.workbench.query_one("#selection").display
        await pilot.press("m")
        assert tracing.weighed == [(1, LAYERS)]
        assert lines(app, "selection") == ["✓ 3 values selected  computing the totals …"]
        assert marks(app, "saved-table").startswith("✓ ")
        tracing.post(SelectionWeighed(1, (answered(target, LAYERS),), None))
        await settle(pilot)
        assert "\n".join(lines(app, "selection")) == (
            "✓ 3 values selected  saved 8.0 KiB −8.0 KiB · recomputed 12.3 kFLOP +2.0 kFLOP"
            " · peak 24.0 KiB −8.0 KiB"
        )
        await pilot.press("u", "home", "m")
        assert tracing.weighed[-1][1] == "recompute:wide_1,recompute:wide_2"
        await pilot.press("u")
        assert marks(app, "saved-table").startswith("~ ")
        await pilot.press("c")
        assert tracing.weighed[-1][1] == ""
        assert not app.workbench.query_one("#selection").display

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_only_the_newest_answer_counts_and_a_failure_is_shown() -> None:
    tracing, target = FakeTracing(), replace(training_target(), partition=chosen_partition())

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await open_saved(app, pilot, tracing, report_of(target))
        await select(app, pilot, "saved-table", "saved:gelu")
        await pilot.press("m", "m", "m")
        assert [change for _, change in tracing.weighed] == [LARGE, "", LARGE]
        tracing.post(SelectionWeighed(1, (answered(target, LARGE),), None))
        await settle(pilot)
        assert lines(app, "selection") == ["✓ 1 value selected  computing the totals …"]
        tracing.post(SelectionWeighed(3, (), Failure("user", "it is random")))
        await settle(pilot)
        assert lines(app, "selection") == ["✓ 1 value selected  it is random"]

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_the_policy_file_is_written_after_the_user_has_seen_it(tmp_path: Path) -> None:
    tracing, target = FakeTracing(), replace(training_target(), partition=chosen_partition())

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await write_gelu(app, pilot, tracing, target)
        await offered(app, pilot, tracing, target)
        written = tmp_path / "model_policy.py"
        assert not written.exists()
        await pilot.press("y")
        assert 'RECOMPUTE = frozenset({"gelu"})' in written.read_text()

    drive(scenario, AotlensApp(str(tmp_path / "model.py"), tracing=tracing))


async def write_gelu(app: AotlensApp, pilot: Pilot[int], tracing: FakeTracing, target: Target) -> None:
    """Select the largest value, answer with its totals, and press the key that writes the selection."""
    await open_saved(app, pilot, tracing, report_of(target))
    await select(app, pilot, "saved-table", "saved:gelu")
    await pilot.press("m")
    tracing.post(SelectionWeighed(1, (answered(target, LARGE),), None))
    await settle(pilot)
    await pilot.press("p")


async def offered(app: AotlensApp, pilot: Pilot[int], tracing: FakeTracing, target: Target) -> None:
    """Answer the trial of the checkpoints, if one runs, and wait for the offer."""
    if tracing.tried:
        tracing.post(EditsTried(tracing.tried[-1][0], (target,), None))
        await settle(pilot)
    assert isinstance(app.screen, ConfirmScreen)


@pytest.mark.rotates
def test_a_file_of_the_users_stays(tmp_path: Path) -> None:
    tracing, target = FakeTracing(), replace(training_target(), partition=chosen_partition())
    own = tmp_path / "model_policy.py"
    own.write_text("mine\n")

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await write_gelu(app, pilot, tracing, target)
        await offered(app, pilot, tracing, target)
        await pilot.press("y")
        assert own.read_text() == "mine\n"
        assert [note.message for note in app._notifications][
            -1
        ] == f"{own} exists, and aotlens did not write it"

    drive(scenario, AotlensApp(str(tmp_path / "model.py"), tracing=tracing))


def offer_a_checkpoint(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Make every selection one of which a whole call is recomputed, on the first line of a file."""
    file.write_text("y = up(x)\n")
    edit = Edit(Span(str(file), 1, 4, 1, 9), "checkpoint(up, x, use_reentrant=False)")
    monkeypatch.setattr("tui.selecting.checkpoint_fix", lambda *_: Fix("Recompute `up`", (edit,)))


@pytest.mark.rotates
@pytest.mark.parametrize("fails", [False, True])
def test_checkpoints_are_offered_once_an_edited_copy_was_traced(
    fails: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tracing, target = FakeTracing(), replace(training_target(), partition=chosen_partition())
    file = tmp_path / "model.py"
    offer_a_checkpoint(monkeypatch, file)

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await write_gelu(app, pilot, tracing, target)
        edited = "y = checkpoint(up, x, use_reentrant=False)\n"
        assert tracing.tried == [(2, ((str(file.resolve()), edited),))]
        assert not isinstance(app.screen, ConfirmScreen)
        partition = replace(chosen_partition(), saved_bytes=8192)
        failure = Failure("user", "checkpoint is not defined") if fails else None
        other_signature = replace(target, inputs=())
        targets = () if fails else (other_signature, replace(target, partition=partition))
        tracing.post(EditsTried(2, targets, failure))
        await settle(pilot)
        assert isinstance(app.screen, ConfirmScreen)
        titles = [title for title, _ in app.screen.choices]
        assert titles[0] == "Policy file model_policy.py"
        if fails:
            assert [note.message for note in app._notifications][-1] == "checkpoint is not defined"
            assert not any("Recompute" in title for title in titles)
            return
        assert titles[-1] == "Recompute `up`: saves 8.0 KiB, −8.0 KiB"
        assert [line.text for line in app.screen.choices[-1][1]][-2:] == ["-y = up(x)", f"+{edited.rstrip()}"]
        await pilot.press("left", "y")
        assert file.read_text() == edited

    drive(scenario, AotlensApp(str(file), tracing=tracing, roots=(str(tmp_path),)))
