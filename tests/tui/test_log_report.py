"""A report that was built from a log of torch's, in the app."""

from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from aotlens.cli.saved_reports import report_of_trace, what_ifs_of_trace
from aotlens.errors import UserError
from aotlens.model.report import Report
from aotlens.render.html.build import html_page
from aotlens.trace.build import Extras, build_report
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.partition_reasons import with_reasons
from aotlens.trace.what_ifs import SolverRequest
from aotlens.view.tabs.ranks import rank_lines
from aotlens.view.tabs.tradeoffs import tradeoff_lines
from aotlens.worker.protocol import TraceOptions
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
    solved = build_report(open_trace(LOGS / "net-inductor"), "test", "0/0", extras=Extras(with_reasons))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert "our solver would save 2.8 KiB" in " ".join(lines(app, "overview-lines"))
        await pilot.press("5")
        assert any("expensive to recompute" in row for row in rows(app, "saved-table"))

    drive(scenario, AotlensApp("logs", report=solved))


def test_the_overview_and_the_page_show_ranks() -> None:
    of_ranks = build_report(open_trace(LOGS / "tensor_parallel-aot_eager"), "test")
    expected = (
        "2 ranks, 1 of 1 compilations differ",
        "rank 0 has `partial` = matmul f32[8, 16], rank 1 has `hidden_1` = mul f32[8, 32]",
        "feed_forward  rank 1",
        "slowest is rank 0",
        "all_gather_into_tensor  f32[8, 16]  1.0 KiB",
    )

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        shown = " ".join(lines(app, "overview-lines"))
        assert [words for words in expected if words not in shown] == []

    drive(scenario, AotlensApp("logs", report=of_ranks))
    assert of_ranks.ranks is not None
    linked = [line for line in rank_lines(of_ranks.ranks) if "`partial`" in line.text]
    assert [span.line for span in linked[0].link.primary] == [19, 18]
    page = html_page(of_ranks, "logs")
    assert "slowest is rank 0" in page
    assert '"title":"Ranks"' in page.replace(": ", ":")


def test_the_what_if_key_names_the_command_for_a_log() -> None:
    solved = build_report(open_trace(LOGS / "net-inductor"), "test", "0/0", extras=Extras(with_reasons))
    seen: list[str] = []

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5", "home", "f")
        await pilot.pause()
        seen.extend(notice.message for notice in app._notifications)

    drive(scenario, AotlensApp("my logs::0/0", report=solved))
    assert len(seen) == 1
    assert "aotlens inspect 'my logs::0/0' --what-if recompute:" in seen[0]


def test_the_what_if_key_asks_our_solver_about_the_shown_target() -> None:
    log = str(LOGS / "net-inductor")
    options = TraceOptions()
    solved = report_of_trace(log, "0/0", (), options)
    answer = what_ifs_of_trace(log, (), options)

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5", "home", "f")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert app.target is not None
        assert app.target.partition is not None
        assert [row.change.partition(":")[0] for row in app.target.partition.what_if] == ["recompute"]
        assert app.target.stages == solved.targets[0].stages

    app = AotlensApp(log, report=solved)
    app.answer_what_if = answer
    drive(scenario, app)


def test_a_change_that_is_impossible_is_a_notice() -> None:
    log = str(LOGS / "net-inductor")
    target = report_of_trace(log, "0/0").targets[0]
    with pytest.raises(UserError, match="no_such_value"):
        what_ifs_of_trace(log, (), TraceOptions())("recompute:no_such_value", target)


def test_an_answer_says_whose_choice_it_changes() -> None:
    request = SolverRequest(changes=("recompute:addmm",))
    explain = partial(with_reasons, request=request)
    solved = build_report(open_trace(LOGS / "net-inductor"), "test", "0/0", extras=Extras(explain))
    partition = solved.targets[0].partition
    assert partition is not None
    shown = [line.text for line in tradeoff_lines(partition)]
    assert any("recompute:addmm  compared with our solver's choice under min-cut" in line for line in shown)
