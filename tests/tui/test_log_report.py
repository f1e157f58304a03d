"""A report that was built from a log of torch's, in the app."""

from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from aotlens.report.records import Report
from aotlens.trace.build import build_report
from aotlens.trace.reader import open_trace
from aotlens.trace.reasons import explained
from aotlens.trace.what_ifs import SolverRequest
from tests.tui.driving import drive, lines, rows
from tui.app import AotlensApp
from tui.view.tradeoffs import tradeoff_lines

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


def test_the_what_if_key_names_the_command_for_a_log() -> None:
    solved = build_report(open_trace(LOGS / "net-inductor"), "test", "0/0", explain=explained)
    seen: list[str] = []

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5", "home", "f")
        await pilot.pause()
        seen.extend(notice.message for notice in app._notifications)

    drive(scenario, AotlensApp("my logs::0/0", report=solved))
    assert len(seen) == 1
    assert "aotlens inspect 'my logs::0/0' --what-if recompute:" in seen[0]


def test_an_answer_says_whose_choice_it_changes() -> None:
    request = SolverRequest(changes=("recompute:addmm",))
    explain = partial(explained, request=request)
    solved = build_report(open_trace(LOGS / "net-inductor"), "test", "0/0", explain=explain)
    partition = solved.targets[0].partition
    assert partition is not None
    shown = [line.text for line in tradeoff_lines(partition)]
    assert any("recompute:addmm  beside our solver's choice under min-cut" in line for line in shown)
