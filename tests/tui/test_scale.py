"""50,000 nodes: what is drawn depends on the screen, never on the number of nodes."""

from typing import Any

import pytest
from textual.pilot import Pilot

from aotlens.report import Report
from tests.report.sample import sample_report
from tests.tui.driving import drive, rows, settle, table
from tui.app import AotlensApp
from tui.view import graph

NODES = 50_000


@pytest.fixture(scope="module")
def large() -> Report:
    return sample_report(nodes=NODES)


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
