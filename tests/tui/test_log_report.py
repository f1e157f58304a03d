"""A report that was built from a log of torch's, in the app."""

from pathlib import Path

import pytest
from textual.pilot import Pilot

from aotlens.report.records import Report
from aotlens.trace.build import build_report
from aotlens.trace.reader import open_trace
from aotlens.trace.reasons import explained
from tests.tui.driving import drive, lines, rows
from tui.app import AotlensApp

LOGS = Path(__file__).resolve().parents[1] / "trace" / "logs"


@pytest.fixture(scope="module")
def report() -> Report:
    return build_report(open_trace(LOGS / "net-inductor"), "test")


def test_every_tab_shows_a_report_from_a_log(report: Report) -> None:
    seen: list[str] = []

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        for key in "123456789":
            await pilot.press(key)
            await pilot.pause()
            seen.append(app.workbench.pane.TAB)

    drive(scenario, AotlensApp("logs", report=report))
    assert len(set(seen)) == 9


def test_the_overview_names_what_a_log_does_not_say(report: Report) -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        shown = " ".join(lines(app, "overview-lines"))
        assert "log of torch.compile" in shown
        assert "times of kernels, compared with eager" in shown

    drive(scenario, AotlensApp("logs", report=report))


def test_the_overview_compares_our_solver_with_torchs() -> None:
    solved = build_report(open_trace(LOGS / "net-inductor"), "test", "0/0", explain=explained)

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert "our solver would save 2.8 KiB" in " ".join(lines(app, "overview-lines"))
        await pilot.press("5")
        assert any("slow to compute again" in row for row in rows(app, "saved-table"))

    drive(scenario, AotlensApp("logs", report=solved))
