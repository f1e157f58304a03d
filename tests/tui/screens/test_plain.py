"""Terminals without Unicode: everything is drawn in ASCII, at the same place."""

import pytest
from textual.pilot import Pilot

from tests.tui.driving import drive, screen_text, settle
from tui.app import AotlensApp
from tui.panes.registry import CHOICES
from tui.widgets.plain import is_plain, plain


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "de_DE.utf8"}, False),
        ({"LANG": "C"}, True),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        # As Python leaves them behind where it finds the locale C, or none.
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, False),
    ],
)
def test_the_locale_says_what_the_terminal_takes(environment: dict[str, str], expected: bool) -> None:
    assert is_plain(environment) is expected


def test_each_character_takes_as_many_cells() -> None:
    assert plain("größe 🙂 → │›•▌…") == "gro?e ?? > |>*#~"


@pytest.mark.rotates
def test_every_tab_is_drawn_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "C")
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.delenv("LC_CTYPE", raising=False)

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        # The source of the sample has letters that ASCII lacks; our own signs all have a likeness.
        await pilot.press("z")
        for key, _, _ in CHOICES:
            await pilot.press(key)
            await settle(pilot)
            text = screen_text(app)
            assert text.isascii()
            assert [
                line for line in text.splitlines() if "?" in line.replace("? Keys", "") and "gr" not in line
            ] == []

    drive(scenario)
