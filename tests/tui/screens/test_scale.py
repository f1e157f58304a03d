"""50,000 nodes: what is drawn depends on the screen, never on the number of nodes."""

import linecache
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from aotlens.model import Report, Span, Target
from aotlens.model.spans import texts
from aotlens.view.tabs.drawn_graph import graph
from aotlens.view.tabs.overview import screen as view
from aotlens.view.tabs.tables.rows import Line
from tests.report.sample import sample_report
from tests.tui.driving import NARROW, drive, lines, rows, settle, table
from tui.app import AotlensApp
from tui.panes import overview

NODES = 50_000


@pytest.fixture(scope="module")
def large() -> Report:
    return sample_report(nodes=NODES)


@pytest.mark.rotates
def test_a_page_of_a_long_table_makes_a_page_of_rows(large: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    cells = graph.node_cells

    def counting(node: Any, home: str | None) -> Any:
        made.append(node.name)
        return cells(node, home)

    monkeypatch.setattr(graph, "node_cells", counting)

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert made == []
        await pilot.press("4")
        opened = len(made)
        await pilot.press("pagedown", "end")
        assert table(app, "nodes").key == "output"
        assert opened < 400
        assert len(made) - opened < 200

    drive(scenario, AotlensApp("model.py", report=large))


@pytest.mark.rotates
def test_the_filter_and_the_source_find_rows_among_all(large: Report) -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        table(app, "nodes").filter("fw_49999")
        assert [row.split(" | ")[0] for row in rows(app, "nodes")] == ["fw_49999"]
        table(app, "nodes").filter("")
        await settle(pilot)
        app.workbench.source.code.focus()
        app.workbench.source.code.place_cursor(22)
        await pilot.press("down")
        assert len(table(app, "nodes").linked) == NODES // 4 + 2

    drive(scenario, AotlensApp("model.py", report=large))


@pytest.mark.rotates
def test_the_overview_is_made_once_whatever_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counting(report: Report, target: Target, changed: tuple[Line, ...] = ()) -> view.Overview:
        made.append(target.name)
        return view.overview(report, target, changed)

    monkeypatch.setattr(overview, "overview", counting)

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.resize_terminal(*NARROW)
        await settle(pilot)
        await pilot.press("5", "1")
        assert made == ["Block"]

    drive(scenario)


def test_a_file_that_is_gone_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def looking(file: str) -> list[str]:
        asked.append(file)
        return []

    monkeypatch.setattr(linecache, "getlines", looking)
    said = texts()
    assert [said(Span("gone.py", line, 0, line, 9)) for line in (1, 2, 1)] == ["", "", ""]
    assert asked == ["gone.py"]


@pytest.mark.rotates
def test_a_key_that_brings_other_facts_lays_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out: list[str] = []
    refresh = Screen._refresh_layout

    def counting(self: Screen[Any], *arguments: Any, **more: Any) -> None:
        laid_out.append(str(self.id))
        refresh(self, *arguments, **more)

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        for key, detail in (("5", "saved-detail"), ("6", "memory-detail"), ("3", "follow")):
            await pilot.press(key)
            seen = set()
            monkeypatch.setattr(Screen, "_refresh_layout", counting)
            for _ in range(3):
                await pilot.press("down")
                seen.add(len(lines(app, detail)))
            monkeypatch.setattr(Screen, "_refresh_layout", refresh)
            assert (len(seen) > 1, laid_out) == (True, []), detail

    drive(scenario)
