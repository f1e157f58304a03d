"""The border between source and facts: dragged, moved with keys, and remembered."""

from pathlib import Path

import pytest
from textual.events import Resize
from textual.geometry import Size
from textual.pilot import Pilot

from tests.report.sample import sample_report
from tests.tui.driving import NARROW, WIDE, drive, settle
from tui.app import AotlensApp
from tui.preferences import Preferences, Remembered, read_remembered, write_remembered
from tui.widgets.split import MOST, Split


def left(app: AotlensApp) -> tuple[int, int]:
    size = app.workbench.query_one("#left").outer_size
    return size.width, size.height


async def drag(app: AotlensApp, pilot: Pilot[int], start: tuple[int, int], end: tuple[int, int]) -> None:
    await pilot.mouse_down(offset=start)
    await pilot.hover(offset=end)
    await pilot.mouse_up(offset=end)
    await settle(pilot)


@pytest.mark.rotates
def test_the_border_is_dragged_from_either_side() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        width, _ = left(app)
        assert width == 55
        await drag(app, pilot, (width - 1, 10), (72, 12))
        assert left(app)[0] == 72
        await drag(app, pilot, (72, 5), (30, 5))
        assert left(app)[0] == 30
        await drag(app, pilot, (10, 10), (60, 10))
        assert left(app)[0] == 30, "a drag inside a pane moves nothing"
        assert app.remembered.shares == {"beside": 25}

    drive(scenario, size=WIDE)


@pytest.mark.rotates
def test_the_line_between_stacked_panes_is_dragged() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        _, height = left(app)
        top = app.workbench.query_one("#results").region.y
        await drag(app, pilot, (20, top), (20, top + 6))
        assert left(app)[1] in (height + 5, height + 6)
        assert set(app.remembered.shares) == {"stacked"}

    drive(scenario, size=NARROW)


@pytest.mark.rotates
def test_keys_move_it_to_its_limits_and_zoom_stays_whole() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("greater_than_sign")
        wider = left(app)[0]
        await pilot.press("less_than_sign", "less_than_sign")
        narrower = left(app)[0]
        assert narrower < 55 < wider
        await pilot.press(*["greater_than_sign"] * 14)
        assert app.remembered.shares == {"beside": MOST}
        app.workbench.source.code.focus()
        await pilot.press("z")
        assert left(app)[0] == WIDE[0]
        await pilot.press("z")
        assert left(app)[0] == WIDE[0] * MOST // 100

    drive(scenario, size=WIDE)


@pytest.mark.rotates
def test_the_next_session_has_the_same_split(tmp_path: Path) -> None:
    file = tmp_path / "state" / "tui.json"
    assert write_remembered(file, Remembered("nord", {"beside": 30})) is None
    remembered = read_remembered(file)
    app = AotlensApp("m.py", report=sample_report())
    app.use(Preferences(remembered=remembered))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert (left(app)[0], app.theme) == (36, "nord")

    drive(scenario, app, size=WIDE)


def test_after_a_burst_of_resizes_the_layout_is_that_of_the_last() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        for size in (Size(*NARROW), Size(*WIDE), Size(*NARROW), Size(*WIDE)):
            app.post_message(Resize(size, size))
        await settle(pilot)
        assert app.workbench.has_class("-wide")
        assert not app.workbench.query_one(Split).stacked

    drive(scenario, size=WIDE)


def test_damaged_and_unwritable_files_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "tui.json"
    for text in ("", "[]", '{"shares": 3}', '{"theme": 1, "shares": {"beside": 400}}'):
        file.write_text(text, encoding="utf-8")
        assert read_remembered(file) == Remembered()
    assert write_remembered(file / "no folder" / "tui.json", Remembered()) is not None
