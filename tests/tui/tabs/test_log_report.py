"""A report that was built from a log of torch's, in the app."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from aotlens.cli.log_reports import LogReports
from aotlens.errors import UserError
from aotlens.model.log import Log, RecordKind
from aotlens.model.report import Report
from aotlens.render.html.build import html_page
from aotlens.trace.build import Extras, build_report
from aotlens.trace.listing import Limits
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.partition_reasons import with_reasons
from aotlens.trace.what_ifs import SolverRequest
from aotlens.view.tabs.ranks import rank_tab_lines
from aotlens.view.tabs.tradeoffs import tradeoff_lines
from aotlens.worker.protocol import TraceOptions
from tests.tui.driving import drive, lines, rows
from tui.app import AotlensApp
from tui.log_questions import LogAnswers

LOGS = Path(__file__).resolve().parents[2] / "trace" / "logs"


@pytest.fixture(scope="module")
def report() -> Report:
    return build_report(open_trace(LOGS / "net-inductor"), "test")


@pytest.mark.rotates
def test_every_tab_shows_a_report_from_a_log(report: Report) -> None:
    seen: list[str] = []

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        for key in "123456789":
            await pilot.press(key)
            await pilot.pause()
            seen.append(app.workbench.pane.TAB)

    drive(scenario, AotlensApp("logs", report=report))
    assert len(set(seen)) == 9


@pytest.mark.rotates
def test_the_overview_names_what_a_log_does_not_say(report: Report) -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        shown = " ".join(lines(app, "overview-lines"))
        assert "log of torch.compile" in shown
        assert "times of kernels, compared with eager" in shown

    drive(scenario, AotlensApp("logs", report=report))


@pytest.mark.rotates
def test_the_overview_lists_unknown_kinds_of_records(report: Report) -> None:
    unused = (RecordKind("vllm_piecewise", 12, is_known=False), RecordKind("link", 1, is_known=True))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        shown = " ".join(lines(app, "overview-lines"))
        assert "1 unknown kind of records: vllm_piecewise ×12; of a library" in shown
        assert "link" not in shown

    drive(scenario, AotlensApp("logs", report=replace(report, log=Log("logs", unused=unused))))


@pytest.mark.rotates
def test_the_overview_compares_our_solver_with_torchs() -> None:
    solved = build_report(open_trace(LOGS / "net-inductor"), "test", "0/0", extras=Extras(with_reasons))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert "our solver would save 2.8 KiB" in " ".join(lines(app, "overview-lines"))
        await pilot.press("5")
        assert any("expensive to recompute" in row for row in rows(app, "saved-table"))

    drive(scenario, AotlensApp("logs", report=solved))


@pytest.mark.rotates
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
    linked = [line for line in rank_tab_lines(of_ranks.ranks) if "`partial`" in line.text]
    assert [span.line for span in linked[0].link.primary] == [19, 18]
    page = html_page(of_ranks, "logs")
    assert "slowest is rank 0" in page
    assert '"title":"Ranks"' in page.replace(": ", ":")


@pytest.mark.rotates
def test_a_listed_target_is_read_on_enter() -> None:
    log = LogReports(str(LOGS / "net-inductor"))
    few = log.report(limits=Limits(200, 0, reads_on=True))
    assert few.log is not None
    assert [target.qualname for target in few.targets] == ["Net.forward"]
    assert few.log.listed_count == 5
    shown: list[object] = []

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert "5 other targets of the log are not read" in " ".join(lines(app, "overview-lines"))
        await pilot.press("t", "end")
        await pilot.pause()
        assert app.target is not None
        assert app.target.qualname == "Net.forward"
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        shown.extend((app.target.qualname, app.target.mode, len(app.target.kernels)))
        assert "4 other targets of the log are not read" in " ".join(lines(app, "overview-lines"))
        assert sum("Enter" in row for row in rows(app, "targets")) == 4

    app = AotlensApp("logs", report=few)
    app.log_answers = LogAnswers(log.what_if, log.read)
    drive(scenario, app)
    (whole,) = log.report("infer").targets
    assert shown == ["infer", "inference", len(whole.kernels)]


@pytest.mark.rotates
def test_each_variant_of_a_listed_target_is_read_once() -> None:
    log = LogReports(str(LOGS / "tensor_parallel-aot_eager"))
    few = log.report(limits=Limits(200, 0, reads_on=True))
    assert few.log is not None
    (listed,) = few.log.listed
    (shown,) = few.targets
    (other,) = log.read(listed)
    assert listed.ranks != ()
    assert {shown.name, other.name} == {"feed_forward (rank 0)", "feed_forward (rank 1)"}
    assert shown.stages != other.stages


@pytest.mark.rotates
def test_a_what_if_says_that_listed_targets_were_not_asked() -> None:
    log = LogReports(str(LOGS / "net-inductor"), (), TraceOptions(what_if=("recompute:no_such_value",)))
    with pytest.raises(UserError, match=r"5 other targets of the log are not read; .*::ID asks one"):
        log.report(limits=Limits(200, 0, reads_on=True))


@pytest.mark.rotates
def test_a_listed_target_of_a_saved_report_names_the_command() -> None:
    few = LogReports(str(LOGS / "net-inductor")).report(limits=Limits(200, 0, reads_on=True))
    seen: list[str] = []

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("t", "end", "enter")
        await pilot.pause()
        seen.extend(notice.message for notice in app._notifications)

    drive(scenario, AotlensApp("my logs", report=few))
    assert seen == ["To read it from the log: aotlens tui 'my logs::3/0'"]


@pytest.mark.rotates
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


@pytest.mark.rotates
def test_the_what_if_key_asks_our_solver_about_the_shown_target() -> None:
    log = str(LOGS / "net-inductor")
    reports = LogReports(log, (), TraceOptions())
    solved = reports.report("0/0")

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5", "home", "f")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert app.target is not None
        assert app.target.partition is not None
        assert [row.change.partition(":")[0] for row in app.target.partition.what_if] == ["recompute"]
        assert app.target.stages == solved.targets[0].stages

    app = AotlensApp(log, report=solved)
    app.log_answers = LogAnswers(reports.what_if, reports.read)
    drive(scenario, app)


def test_a_change_that_is_impossible_is_a_notice() -> None:
    log = str(LOGS / "net-inductor")
    reports = LogReports(log)
    (target,) = reports.report("0/0").targets
    with pytest.raises(UserError, match="no_such_value"):
        reports.what_if("recompute:no_such_value", target)


def test_an_answer_says_whose_choice_it_changes() -> None:
    request = SolverRequest(changes=("recompute:addmm",))
    explain = partial(with_reasons, request=request)
    solved = build_report(open_trace(LOGS / "net-inductor"), "test", "0/0", extras=Extras(explain))
    partition = solved.targets[0].partition
    assert partition is not None
    shown = [line.text for line in tradeoff_lines(partition)]
    assert any("recompute:addmm  compared with our solver's choice under min-cut" in line for line in shown)
