"""Whole screens as plain text, wide and at the size of an old terminal; and without colour."""

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from aotlens.model import Span
from tests.conftest import Golden
from tests.report.sample import sample_report
from tests.tui.driving import NARROW, WIDE, drive, screen_text, select, settle
from tui.app import AotlensApp

SCREENS = (
    ("overview-120x40", WIDE, ()),
    ("saved-80x24", NARROW, ("5",)),
    ("keys-80x24", NARROW, ("4", "question_mark")),
)


@pytest.mark.parametrize(("name", "size", "keys"), SCREENS, ids=[name for name, _, _ in SCREENS])
def test_the_screen_is_as_drawn(
    name: str, size: tuple[int, int], keys: tuple[str, ...], golden: Golden
) -> None:
    shown: list[str] = []

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        for key in keys:  # each is done before the next: a screen below another is not laid out any more
            await pilot.press(key)
            await settle(pilot)
        await settle(pilot)
        shown.append(screen_text(app))

    drive(scenario, size=size)
    golden(f"tui/{name}.txt", shown[0])


def styles_at(app: AotlensApp, found: Callable[[str], bool]) -> set[tuple[bool, bool]]:
    """Bold and underline of the drawn pieces whose text is looked for."""
    strips = app.screen._compositor.render_strips()
    return {
        (bool(segment.style and segment.style.bold), bool(segment.style and segment.style.underline))
        for strip in strips
        for segment in strip
        if found(segment.text)
    }


def test_without_colour_the_link_and_the_cursor_still_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("2")
        await select(app, pilot, "inputs", "input:6")
        text = screen_text(app).splitlines()
        assert [line.split("│")[-2][:7] for line in text if "copied back" in line][:1] == ["› cache"]
        assert [line for line in text if "▌" in line and " 21 " in line] != []
        assert styles_at(app, lambda piece: piece == "0.9") == {(True, True)}

    drive(scenario, AotlensApp("model.py", report=sample_report()))


def test_a_span_of_no_file_lights_nothing_and_does_no_harm() -> None:
    from aotlens.view.tabs.tables.rows import Link

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        app.workbench.source.light(Link((Span("/nowhere/at_all.py", 3, 0, 3, 4),)))
        await settle(pilot)
        assert app.workbench.source.border_title == "at_all.py is not on this machine"

    drive(scenario)
