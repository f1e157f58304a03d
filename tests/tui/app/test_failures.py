"""Scripts and traces that fail, and faults of the app itself: what is shown, and what the user can do."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from textual.pilot import Pilot

from aotlens.diagnostics.failures import from_failure
from aotlens.model import Diagnostic
from tests.report.sample import MODEL, sample_report
from tests.tui.driving import RAISED, FakeTracing, drive, lines, right_title, rows, settle, shown_pane, source
from tui.app import AotlensApp
from tui.panes.log import LogPane
from tui.panes.registry import LOG_KEY
from tui.tracing import TraceTarget, WorkerTracing


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
