"""Finding nodes and names of all tabs by a few letters."""

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot

from aotlens.view.tabs.tables.search import names_of
from tests.report.sample import sample_report
from tests.tui.driving import drive, settle, table
from tui.app import AotlensApp

NAMES = names_of(sample_report().targets[0])


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("mul", "mul"),  # the name itself before longer ones
        ("MUL_1", "mul_1"),
        ("up.weight", "up.weight"),
        ("cche", "cache"),  # its letters in order
        ("dwn wght", "down.weight"),
    ],
)
def test_the_best_match_comes_first(query: str, first: str) -> None:
    assert NAMES.find(query)[0].name == first


def test_nothing_is_found_for_letters_that_no_name_has() -> None:
    assert NAMES.find("zzqx") == ()


def test_each_kind_of_thing_leads_to_its_tab() -> None:
    kinds = {named.what.partition(" ")[0]: named.jump.tab for named in NAMES.things}
    assert {kinds[kind] for kind in ("parameter", "result", "saved", "recomputed", "kernel")} == {
        "ledger",
        "saved",
        "kernels",
    }


@pytest.mark.rotates
def test_two_slashes_find_a_node_from_anywhere() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("slash", "slash")
        await settle(pilot)
        assert isinstance(app.screen, CommandPalette)
        await pilot.press(*"mul_1")
        await app.workers.wait_for_complete()
        await settle(pilot)
        await pilot.press("down", "enter")
        await settle(pilot)
        assert (app.workbench.pane.TAB, table(app, "nodes").key) == ("graphs", "mul_1")

    drive(scenario)
