"""256 colours: what differs in true colour differs there as well, and looks alike."""

import pytest
from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as TextualColor
from textual.pilot import Pilot

from tests.report.sample import sample_report
from tests.tui.driving import drive
from tui.app import AotlensApp
from tui.widgets import palette
from tui.widgets.palette import Palette, distance, nearest, oklab
from tui.widgets.theme import DARK, LIGHT, LOOKS, look_style

ENTRIES = palette.palette()


def triplet_of(color: Color) -> tuple[int, int, int]:
    return color.get_truecolor()[0], color.get_truecolor()[1], color.get_truecolor()[2]


def drawn_as(triplet: tuple[int, int, int]) -> tuple[int, int, int]:
    return ENTRIES[nearest(triplet) - 16]


def test_entries_are_mapped_to_themselves() -> None:
    assert [triplet for triplet in ENTRIES if drawn_as(triplet) != triplet] == []


def test_a_dark_background_keeps_its_tone_where_rich_loses_it() -> None:
    panel = (0x2A, 0x31, 0x3C)
    rich = Color.from_rgb(*panel).downgrade(ColorSystem.EIGHT_BIT)
    assert rich.number == 23, "a saturated teal"
    assert nearest(panel) == 236, "a dark grey"


@pytest.mark.rotates
@pytest.mark.parametrize("theme", [DARK.name, LIGHT.name])
def test_every_look_is_readable_and_the_cursor_is_seen(theme: str) -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        app.theme = theme
        await pilot.press("5")
        table = app.workbench.query_one("#saved-table")
        ground = drawn_as(table.background_colors[1].rgb)
        lightness = oklab(ground)[0]
        for name in LOOKS:
            style = look_style(table, name)
            if style.bgcolor is not None and style.bgcolor.triplet is not None:
                assert drawn_as(triplet_of(style.bgcolor)) != ground, f"{name} has no background"
            if style.color is not None and style.color.triplet is not None and style.bgcolor is None:
                shown = drawn_as(triplet_of(style.color))
                assert abs(oklab(shown)[0] - lightness) > 0.2, f"{name} is not readable"
                assert distance(oklab(shown), oklab(triplet_of(style.color))) < 0.01, (
                    f"{name} has another colour"
                )

    drive(scenario, AotlensApp("model.py", report=sample_report()))


def test_the_filter_replaces_true_colours_alone() -> None:
    segments = [Segment("a", Style(color="#2a313c", bgcolor="red", bold=True)), Segment("b")]
    first, second = Palette().apply(segments, TextualColor(0, 0, 0))
    assert first.style == Style(color="color(236)", bgcolor="red", bold=True)
    assert second == segments[1]


def test_the_app_uses_it_in_a_terminal_with_256_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    filters = []
    for system in ("256", "truecolor"):
        monkeypatch.setattr("tui.terminal_app.color_system", lambda app, name=system: name)
        filters.append(any(isinstance(each, Palette) for each in AotlensApp("m.py").get_line_filters()))
    assert filters == [True, False]
