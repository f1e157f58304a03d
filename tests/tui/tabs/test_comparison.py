"""Two reports side by side, in the app and in the page."""

from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from aotlens.compare.side_by_side import SideBySide, side_by_side
from aotlens.model.report import Report
from aotlens.render.html.comparison import comparison_page
from tests.fit.sample import sample_fit_report
from tests.report.html.browser import in_browser, needs_chromium
from tests.report.sample import sample_report
from tests.tui.driving import FakeTracing, drive, screen_text, settle
from tui.app import AotlensApp
from tui.comparing import ComparisonScreen
from tui.widgets.table import VirtualTable

NAMES = ("old.json", "<new>.json")


def saves_less() -> Report:
    """Return the sample without its first saved value."""
    report = sample_report()
    target = report.targets[0]
    assert target.partition is not None
    first, *rest = target.partition.saved
    partition = replace(
        target.partition, saved=tuple(rest), saved_bytes=target.partition.saved_bytes - first.bytes
    )
    return replace(report, targets=(replace(target, partition=partition), *report.targets[1:]))


def comparison() -> SideBySide:
    return side_by_side(sample_report(), saves_less(), NAMES)


@pytest.mark.rotates
@needs_chromium
def test_the_page_lists_changed_lines_and_has_addresses(tmp_path: Path) -> None:
    script = """
        await wait();
        const changed = rows("").length;
        click(document.querySelector(".table .row"));
        await wait();
        const first = [location.hash, document.querySelector(".detail").textContent];
        click(having("#panel button", "all lines"));
        await wait();
        const every = rows("").length;
        tab("Totals");
        answer([changed, first, every > changed, document.getElementById("panel").textContent,
                document.getElementById("left").hidden, document.querySelector("h1").textContent]);
    """
    changed, first, more, totals, is_hidden, title = in_browser(
        comparison_page(comparison()), script, tmp_path
    )
    assert changed == 1
    assert first[0].startswith("#Block/lines/changed/")
    assert "old.json  " in first[1]
    assert more
    assert "saved" in totals
    assert is_hidden
    assert title == "old.json → <new>.json"


def test_the_page_escapes_names_and_asks_nobody() -> None:
    page = comparison_page(comparison())
    assert "<new>" not in page
    assert "default-src 'none'" in page


@pytest.mark.rotates
def test_the_app_opens_the_comparison_and_lists_all_lines() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await settle(pilot)
        assert isinstance(app.screen, ComparisonScreen)
        assert "Block (1 of 2)  1 line differs" in screen_text(app)
        table = app.screen.query_one(VirtualTable)
        assert table.row_count == 1
        await pilot.press("a")
        await settle(pilot)
        assert table.row_count > 1
        await pilot.press("n")
        await settle(pilot)
        assert "score (2 of 2)  no line differs" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert not isinstance(app.screen_stack[-1], ComparisonScreen)

    app = AotlensApp("new.json", report=saves_less())
    app.compare_with("old.json", sample_report())
    drive(scenario, app)


@pytest.mark.rotates
def test_a_retrace_is_compared_with_the_trace_before() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(sample_report())
        await settle(pilot)
        await pilot.press("x")
        await settle(pilot)
        assert app.screen is app.workbench
        await pilot.press("r")
        await settle(pilot)
        tracing.answer(saves_less())
        await settle(pilot)
        await pilot.press("x")
        await settle(pilot)
        assert isinstance(app.screen, ComparisonScreen)
        assert app.screen.comparison.names == ("the trace before", "model.py")

    drive(scenario, AotlensApp("model.py", tracing=tracing))


def two_steps() -> SideBySide:
    """Return two results of `aotlens fit`, the second with half the bytes of the first line."""
    report = sample_fit_report()
    assert report.fit is not None
    first, *rest = report.fit.by_line
    fit = replace(report.fit, by_line=(replace(first, bytes=first.bytes // 2), *rest))
    return side_by_side(report, replace(report, fit=fit), NAMES)


@pytest.mark.rotates
@needs_chromium
def test_the_page_compares_the_memory_of_two_steps(tmp_path: Path) -> None:
    script = """
        await wait();
        answer([location.hash, rows("").length, document.getElementById("panel").textContent]);
    """
    _, count, text = in_browser(comparison_page(two_steps()), script, tmp_path, "#step/step/lines")
    assert count == 1
    assert "peak" in text


def test_the_app_compares_the_memory_of_two_steps() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await app.push_screen(ComparisonScreen(two_steps()))
        await settle(pilot)
        table = app.screen.query_one(VirtualTable)
        assert table.row_count == 1
        assert "peak" in screen_text(app)

    drive(scenario, AotlensApp("new.json", report=sample_report()))
