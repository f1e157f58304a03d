"""Traces in the background: progress, answers, failures, cancelling, watching."""

import re
from concurrent.futures import Future
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from aotlens.model import SavedValue, encode
from aotlens.model.failure import Failure
from aotlens.model.report import Verdict
from aotlens.worker.protocol import Answer
from tests.report.sample import MODEL, sample_report, span, tensor
from tests.tui.driving import RAISED, FakeTracing, drive, lines, right_title, settle, shown_pane, table
from tui.app import AotlensApp
from tui.messages import SourceChanged
from tui.panes.registry import CHOICES
from tui.tracing import ended


@pytest.mark.rotates
def test_progress_is_shown_until_the_report_is_there() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert shown_pane(app) == "progress"
        tracing.progress("import")
        tracing.progress("joint", "MLP.forward")
        await settle(pilot)
        phases = [re.sub(r" +[\d.]+ (ms|s)$", "", line).strip() for line in lines(app, "progress-lines")[2:6]]
        assert phases == [
            "+ importing torch",
            "+ reading your script",
            "› tracing MLP.forward: joint",
            "building the report",
        ]
        for stage, detail in (("run", ""), ("capture", "Head.forward"), ("run", "")):
            tracing.progress(stage, detail)
        await settle(pilot)
        phases = [re.sub(r" +[\d.]+ (ms|s)$", "", line).strip() for line in lines(app, "progress-lines")[2:7]]
        assert phases == [
            "+ importing torch",
            "+ reading your script",
            "+ tracing Head.forward",
            "› running your script",
            "building the report",
        ]
        assert right_title(app).startswith("running your script ")
        tracing.answer(sample_report(), "step 0 loss 4.2\n")
        await settle(pilot)
        assert (shown_pane(app), right_title(app)) == ("overview", "traced in 1.2 s")
        await pilot.press("0")
        assert app.workbench.query_one("#log-text").text.lines == ("step 0 loss 4.2",)  # type: ignore[attr-defined]

    drive(scenario, AotlensApp("model.py", tracing=tracing))


def test_a_tab_chosen_while_the_trace_runs_is_open_when_it_ends() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        assert shown_pane(app) == "progress"
        tracing.answer(sample_report())
        await settle(pilot)
        assert shown_pane(app) == "saved"

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_escape_cancels_and_the_result_before_stays() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(sample_report())
        await settle(pilot)
        await pilot.press("r")
        assert (app.workbench.has_class("-stale"), shown_pane(app)) == (True, "overview")
        await pilot.press("escape")
        await settle(pilot)
        assert (app.workbench.has_class("-stale"), right_title(app)) == (False, "cancelled · r retraces")
        assert shown_pane(app) == "overview"
        await pilot.press("5")
        assert table(app, "saved-table").key == "saved:addmm"

    drive(scenario, AotlensApp("model.py", tracing=tracing))


def test_stale_answers_are_dropped() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        app.post_message(SourceChanged(("model.py",)))
        await settle(pilot)
        tracing.answer(sample_report(), trace=1)
        await settle(pilot)
        assert (app.report, shown_pane(app), len(tracing.started)) == (None, "progress", 2)

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_a_new_trace_says_what_changed() -> None:
    tracing = FakeTracing()
    old = sample_report()
    target = old.targets[0]
    assert target.partition is not None
    wide = SavedValue("relu", tensor("f32[512, 256]"), 1 << 19, "new", "cheap", span("x + self.down(gated)"))
    layers = (replace(wide, layer="h.0"), replace(wide, node="relu_1", layer="h.1"))
    saved = (*target.partition.saved, *layers)
    partition = replace(target.partition, saved=saved, saved_bytes=(1 << 20) + 8192)
    new = replace(old, targets=(replace(target, partition=partition, diagnostics=target.diagnostics[:1]),))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(old)
        await settle(pilot)
        app.post_message(SourceChanged((str(MODEL),)))
        await settle(pilot)
        tracing.answer(new)
        await settle(pilot)
        shown = lines(app, "overview-lines")
        place = shown.index("Since the last trace")
        assert shown[place + 1 : place + 4] == [
            "  saved +1.0 MiB at line 24",
            "     +1.0 MiB h.0–1: x + self.down(gated) ×2  at line 24",
            "  gone AL301 `self.up(x)` saves 8.0 KiB for the backward, all of the 8.0 KiB saved here",
        ]
        assert right_title(app) == "saved +1.0 MiB at line 24 · traced in 1.2 s"
        app.post_message(SourceChanged((str(MODEL),)))
        await settle(pilot)
        assert app.workbench.has_class("-stale")
        tracing.answer(new)
        await settle(pilot)
        assert right_title(app) == "nothing changed · traced in 1.2 s"

    drive(scenario, AotlensApp("model.py", tracing=tracing))


def test_an_answer_from_disk_is_said_to_be_unchanged() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer_again(sample_report())
        await settle(pilot)
        assert right_title(app) == "unchanged, from the cache"

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_the_verdict_is_visible_on_every_tab() -> None:
    tracing = FakeTracing()
    sample = sample_report()
    verified = replace(sample.targets[0], verified=Verdict("not verified", "its gradients were not compared"))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(replace(sample, targets=(verified, *sample.targets[1:])))
        await settle(pilot)
        for key, _, _ in CHOICES:
            await pilot.press(key)
            assert right_title(app).startswith("not verified · ")

    drive(scenario, AotlensApp("model.py", tracing=tracing))


def test_answers_of_the_worker_become_messages() -> None:
    report = sample_report()
    data = encode(report)
    newer = {**data, "schema": "aotlens.report/2"}
    futures: list[Future[Answer]] = [Future() for _ in range(4)]
    futures[0].set_result(Answer(1, data, None, "said", 12.0))
    futures[1].set_result(Answer(2, None, RAISED))
    futures[2].set_result(Answer(3, newer, None))
    futures[3].set_exception(OSError("pipe closed"))
    got = [ended(number, future) for number, future in enumerate(futures, 1)]
    assert [(event.trace, event.report, event.output) for event in got[:2]] == [
        (1, report, "said"),
        (2, None, ""),
    ]
    assert got[1].failure == RAISED
    assert [event.failure and event.failure.kind for event in got[2:]] == ["internal", "internal"]
    assert got[3].failure == Failure("internal", "the worker failed: pipe closed", exit_code=3)


@pytest.mark.rotates
def test_a_key_compares_with_eager_and_the_overview_tells_the_verdict() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        report = sample_report()
        tracing.answer(report)
        await settle(pilot)
        await pilot.press("v")
        assert [asked.verify for asked in tracing.asked] == [False, True]
        verdict = Verdict("differs", "out differs by 0.5 at [0, 1]\nfirst at mul_1")
        tracing.answer(replace(report, targets=(replace(report.targets[0], verified=verdict),)))
        await settle(pilot)
        assert "verified  differs  out differs by 0.5 at [0, 1]" in lines(app, "overview-lines")

    drive(scenario, AotlensApp("model.py", tracing=tracing))
