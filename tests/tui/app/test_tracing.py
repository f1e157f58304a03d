"""Traces in the background: progress, answers, failures, cancelling, watching."""

import re
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from textual.pilot import Pilot

from aotlens.diagnostics.failures import from_failure
from aotlens.model import Diagnostic, SavedValue, encode
from aotlens.model.failure import Failure
from aotlens.model.report import Verdict
from aotlens.worker.protocol import Answer
from tests.report.sample import MODEL, sample_report, span, tensor
from tests.tui.driving import FakeTracing, drive, lines, rows, settle, source, table
from tui.app import AotlensApp
from tui.messages import SourceChanged
from tui.panes.log import LogPane
from tui.panes.registry import CHOICES, LOG_KEY
from tui.tracing import TraceTarget, WorkerTracing, ended

RAISED = Failure(
    "user",
    "ValueError: heads must divide width (model.py:20)",
    'Traceback (most recent call last):\n  File "model.py", line 20, in forward\nValueError: heads',
    str(MODEL),
    20,
)


def right_title(app: AotlensApp) -> str:
    return "".join(part.text for part in app.workbench.query_one("#title").right)  # type: ignore[attr-defined]


def shown_pane(app: AotlensApp) -> str:
    return str(app.workbench.query_one("#results").current)  # type: ignore[attr-defined]


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


def test_a_tab_without_a_result_shows_the_failure() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.fail(RAISED, "step 0\n")
        await settle(pilot)
        shown = []
        for key in ("5", "0", "1", "w"):
            await pilot.press(key)
            shown.append(shown_pane(app))
        assert shown == ["failure", "log", "failure", "failure"]
        await pilot.press("r")
        tracing.answer(sample_report())
        await settle(pilot)
        assert shown_pane(app) == "why"

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_a_failure_shows_the_users_traceback_and_r_retries() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.fail(RAISED, "before it failed\n")
        await settle(pilot)
        assert shown_pane(app) == "failure"
        assert lines(app, "failure-lines") == [
            "The script raised an exception",
            "",
            "ValueError: heads must divide width (model.py:20)",
            "",
            (f"r retraces · e opens sample_model.py:20 · {LOG_KEY} shows what the script printed · q quits"),
        ]
        traceback = app.workbench.query_one("#traceback")
        assert traceback.text.raw == tuple(RAISED.traceback.splitlines())  # type: ignore[attr-defined]
        assert (source(app).text.file, source(app).cursor) == (str(MODEL), 20)
        marks = app.workbench.source.marks
        assert {line: mark.findings for (_, line), mark in marks.items()} == {20: ("AL902",)}
        await pilot.press("0")
        log = app.workbench.query_one("#log-text")
        assert log.text.raw == ("before it failed", *RAISED.traceback.splitlines())  # type: ignore[attr-defined]
        await pilot.press("1", "r")
        tracing.answer(sample_report())
        await settle(pilot)
        assert (tracing.started, shown_pane(app)) == ([(1, False), (2, True)], "overview")

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


def test_examples_that_fail_beside_others_are_shown_as_failed() -> None:
    tracing = FakeTracing()
    failed = tuple(Diagnostic(code, "error", f"no {code}", None) for code in ("AL902", "AL906"))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(replace(sample_report(), diagnostics=failed))
        await settle(pilot)
        assert right_title(app) == "2 failed · traced in 1.2 s"
        assert app.workbench.query_one("#title").has_class("-failed")
        await pilot.press("r")
        tracing.answer(sample_report())
        await settle(pilot)
        assert right_title(app) == "nothing changed · traced in 1.2 s"
        assert not app.workbench.query_one("#title").has_class("-failed")

    drive(scenario, AotlensApp("model.py", tracing=tracing))


def test_a_script_without_a_target_has_no_facts_of_one() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        missing = Diagnostic("AL905", "warning", "model.py has no target", None)
        tracing.answer(replace(sample_report(), targets=(), diagnostics=(missing,)))
        await settle(pilot)
        assert [line for line in lines(app, "overview-lines") if line] == [
            "What to do first",
            "  1. model.py has no target  → `aotlens rule AL905` explains it",
            "Diagnostics",
            "  W AL905           model.py has no target",
        ]

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_a_script_that_fails_after_a_trace_is_shown_as_failed() -> None:
    tracing = FakeTracing()
    sample = sample_report()
    report = replace(
        sample,
        incomplete=f"the script failed: {RAISED.message}",
        diagnostics=(from_failure(RAISED), *sample.diagnostics),
    )

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer_with_failure(report, RAISED, "step 0\n")
        await settle(pilot)
        assert right_title(app) == "incomplete · the script failed · 9 shows where, 0 the traceback"
        assert app.workbench.query_one("#title").has_class("-failed")
        assert "missing   the script failed: ValueError: heads must divide width (model.py:20)" in "\n".join(
            lines(app, "overview-lines")
        )
        await pilot.press("9")
        assert "AL902" in rows(app, "diagnostic-table")[0]
        await pilot.press("0")
        log = app.workbench.query_one("#log-text").text.lines  # type: ignore[attr-defined]
        assert (log[0], log[-1]) == ("step 0", "ValueError: heads")
        tracing_again = len(tracing.started)
        await pilot.press("r")
        tracing.answer(sample)
        await settle(pilot)
        assert len(tracing.started) == tracing_again + 1
        assert not app.workbench.query_one("#title").has_class("-failed")

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_the_saved_report_of_a_script_that_failed_is_shown_as_failed() -> None:
    failed = replace(
        sample_report(),
        incomplete=f"the script failed: {RAISED.message}",
        diagnostics=(from_failure(RAISED),),
    )

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert right_title(app).startswith("incomplete · report · torch ")
        assert app.workbench.query_one("#title").has_class("-failed")

    drive(scenario, AotlensApp("model.json", report=failed))

    async def stopped(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert right_title(app).startswith("incomplete")
        assert not app.workbench.query_one("#title").has_class("-failed")

    drive(stopped, AotlensApp("model.json", report=replace(sample_report(), incomplete="it was stopped")))


def test_a_script_that_does_not_parse_is_shown_without_the_worker(tmp_path: Path) -> None:
    script = tmp_path / "half.py"
    script.write_text("import torch\ndef f(:\n")
    tracing = WorkerTracing(TraceTarget(str(script)))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await settle(pilot)
        assert shown_pane(app) == "failure"
        assert lines(app, "failure-lines")[:3] == [
            "The script does not parse",
            "",
            f"{script}:2: syntax error: invalid syntax",
        ]
        assert tracing._client.hello is None

    try:
        drive(scenario, AotlensApp(str(script), tracing=tracing))
    finally:
        tracing.close()


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
def test_a_fault_of_the_app_is_told_in_few_lines_without_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual's own words for it print every local: with a report in one of them, thousands of lines."""

    def fail(self: object, subject: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(LogPane, "fill", fail)
    told: list[object] = []

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        monkeypatch.setattr(app, "panic", lambda *shown: told.extend(shown))
        await pilot.press("0")

    with pytest.raises(RuntimeError, match="a bug"):
        drive(scenario)
    console = Console(width=100)
    with console.capture() as printed:
        console.print(told[0])
    text = printed.get()
    assert "RuntimeError: a bug" in text
    assert "this is a bug of aotlens" in text
    assert text.count("\n") < 120
    assert "sample_model" not in text


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
