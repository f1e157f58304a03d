"""The order of tables: by value, with the keys and the mouse."""

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from aotlens.view.tabs.fit import fit_kind_listing, fit_line_listing, operator_listing
from aotlens.view.tabs.tables.rows import Column, Part, part, size_part
from aotlens.view.tabs.tables.sorting import Sort, clicked_sort, next_sort, sorted_positions
from tests.fit.sample import MIB, sample_fit
from tests.tui.driving import drive, rows, settle, table
from tui.app import AotlensApp
from tui.widgets.table import VirtualTable

COLUMNS = (Column("name"), Column("size", largest_first=True), Column("", widest=3), Column("line"))


def test_rows_sort_by_value_and_empty_cells_come_last() -> None:
    cells = [
        ("mm_10", size_part(900), "", "9"),
        ("mm_2", size_part(2_000_000), "", "10"),
        ("mm", size_part(None), "", "model.py:4"),
        ("mm_2b", size_part(20_000), "", ""),
    ]
    in_column = [
        sorted_positions(range(4), cells.__getitem__, column, descending=descending)
        for column, descending in ((0, False), (1, True), (1, False), (3, False), (3, True))
    ]
    assert in_column == [(2, 1, 3, 0), (1, 3, 0, 2), (0, 3, 1, 2), (0, 1, 2, 3), (2, 1, 0, 3)]


def test_equal_rows_stay_in_their_order() -> None:
    cells = [(Part("b", value=1),), (Part("a", value=2),), (Part("c", value=1),)]
    assert sorted_positions(range(3), cells.__getitem__, 0, descending=True) == (1, 0, 2)
    assert sorted_positions(range(3), cells.__getitem__, 0, descending=False) == (0, 2, 1)


def test_the_tables_of_a_step_sort_by_bytes_whatever_the_unit() -> None:
    fit, sizes = sample_fit(), (900, 4 * MIB, 20 << 10)
    fit = replace(
        fit,
        by_kind=tuple(replace(row, bytes=size) for row, size in zip(fit.by_kind, sizes, strict=True)),
        by_line=tuple(replace(row, bytes=size) for row, size in zip(fit.by_line, sizes, strict=True)),
        curve=tuple(replace(row, live_bytes=size) for row, size in zip(fit.curve, (*sizes, 0), strict=True)),
    )
    for listing in (fit_kind_listing(fit), fit_line_listing(fit), operator_listing(fit)):
        positions = sorted_positions(range(3), listing.rows.cells, 0, descending=True)
        cells = [part(listing.rows.cells(position)[0]).text for position in positions]
        assert cells == ["4.0 MiB", "20.0 KiB", "900 B"]
        assert next_sort(None, listing.columns) == Sort(listing.columns[0].title, True)


def test_measures_come_first_and_the_own_order_last() -> None:
    orders: list[Sort | None] = [None]
    for _ in range(4):
        orders.append(next_sort(orders[-1], COLUMNS))
    assert orders[1:] == [Sort("size", True), Sort("name", False), Sort("line", False), None]


def test_a_second_click_reverses_and_a_third_one_restores() -> None:
    orders: list[Sort | None] = [None]
    for _ in range(3):
        orders.append(clicked_sort(orders[-1], COLUMNS[1]))
    assert orders[1:] == [Sort("size", True), Sort("size", False), None]


def sizes(app: AotlensApp) -> list[str]:
    return [row.split(" | ")[3] for row in rows(app, "nodes")][:4]


def header(shown: VirtualTable) -> str:
    return shown.header_text(shown.size.width - 2).plain


@pytest.mark.rotates
def test_o_sorts_the_table_and_marks_the_column() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        nodes = table(app, "nodes")
        own = sizes(app)
        await pilot.press("o")
        largest = sizes(app)
        assert "size▼" in header(nodes)
        assert nodes.cursor == 0
        await pilot.press("O")
        assert "size▲" in header(nodes)
        smallest = sizes(app)
        while nodes.sort is not None:
            await pilot.press("o")
        assert (sizes(app), largest[0], "▲" in header(nodes)) == (own, "8.0 KiB", False)
        assert smallest[0] not in ("", "8.0 KiB")

    drive(scenario)


@pytest.mark.rotates
def test_a_click_on_a_title_sorts_and_a_filter_keeps_the_order() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        nodes = table(app, "nodes")
        title = header(nodes)
        await pilot.click(nodes, offset=(2 + title.index("node"), 0))
        await settle(pilot)
        names = [row.split(" | ")[0] for row in rows(app, "nodes")]
        assert "node▲" in header(nodes)
        assert names[:3] == ["add", "add_1", "addmm"]
        await pilot.press("slash", *"mul", "enter")
        assert [row.split(" | ")[0] for row in rows(app, "nodes")] == ["mul", "mul_1"]
        await pilot.click(nodes, offset=(2 + title.index("node"), 0))
        await settle(pilot)
        assert [row.split(" | ")[0] for row in rows(app, "nodes")] == ["mul_1", "mul"]

    drive(scenario)
