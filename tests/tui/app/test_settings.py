"""The user's themes and keys, and the words of the keys."""

from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.report.sample import sample_report
from tests.tui.driving import drive, lines, settle
from tui.app import AotlensApp
from tui.commands import default_keys, every_binding, key_lines
from tui.keys import sentence_of
from tui.preferences import Preferences, Settings, read_settings
from tui.widgets.key_bar import KeyBar


def app_with(settings: Settings) -> AotlensApp:
    app = AotlensApp("model.py", report=sample_report())
    app.use(Preferences(settings))
    return app


def written(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "tui.toml"
    file.write_text(text, encoding="utf-8")
    return read_settings(file)


def footer(app: AotlensApp) -> str:
    bar = app.workbench.query_one(KeyBar)
    return " ".join(bar.render_line(row).text.strip() for row in range(bar.size.height))


@pytest.mark.rotates
def test_a_keymap_moves_keys_in_the_app_the_footer_and_the_help(tmp_path: Path) -> None:
    settings = written(tmp_path, 'theme = "nord"\n[keys]\n"table.sort" = "f5,ctrl+o"\n"tab.saved" = "S"\n')

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert app.theme == "nord"
        await pilot.press("S")
        assert app.workbench.pane.TAB == "saved"
        assert " f5 Sort" in footer(app)
        table = app.workbench.query_one("#saved-table")
        await pilot.press("o")
        assert getattr(table, "sort", None) is None
        await pilot.press("ctrl+o")
        assert getattr(table, "sort", None) is not None
        await pilot.press("question_mark")
        shown = [line.text for line in app.screen.query_one("#help-lines").lines]  # type: ignore[attr-defined]
        assert "f5 ^o        Sort the table by its next column." in shown

    drive(scenario, app_with(settings))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("theme = ", "tui.toml cannot be read: "),
        ('colour = "red"', "`colour` is not a setting; there is `theme = "),
        ("[keys]\nquit = 3", "`keys` is not a setting"),
        ('theme = "nordd"', "there is no theme `nordd`; did you mean `nord`?"),
        ('[keys]\n"table.sorted" = "x"', "[keys] has no binding `table.sorted`; did you mean `table.sort`?"),
    ],
)
def test_a_bad_setting_is_reported_and_left_out(tmp_path: Path, text: str, problem: str) -> None:
    app = app_with(written(tmp_path, text))
    assert (app.theme, dict(app.settings.keys)) == ("aotlens-dark", {})
    assert len(app.settings.problems) == 1
    assert problem in app.settings.problems[0]


def test_without_a_file_there_are_no_settings(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "none.toml") == Settings()


def test_a_key_that_is_taken_twice_is_reported_on_the_screen() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await settle(pilot)
        assert "[keys] `copy` takes the key of `edit`" in [notice.message for notice in app._notifications]

    drive(scenario, app_with(Settings(keys={"copy": "e", "saved.flip": "m"})))


def test_every_key_is_described_by_a_sentence() -> None:
    sentences = [sentence_of(binding) for binding in every_binding()]
    assert [text for text in sentences if not (text[0].isupper() and text.endswith("."))] == []
    names = [line.split()[0] for line in key_lines()]
    assert names == sorted(set(names))


@pytest.mark.rotates
def test_palette_entries_are_sentences_with_their_keys() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        offered = {command.title: command for command in app.get_system_commands(app.screen)}
        assert [title for title in offered if not title.endswith(".")] == []
        assert len(list(app.get_system_commands(app.screen))) == len(offered)
        sort = offered["Sort the table by its next column."]
        assert sort.help == "Key o"
        assert "Open the tab Graph." in offered
        table = app.workbench.query_one("#saved-table")
        pending = sort.callback()
        if pending is not None:
            await pending
        await settle(pilot)
        assert getattr(table, "sort", None) is not None

    drive(scenario)


@pytest.mark.rotates
def test_the_footer_shows_the_keys_of_the_focused_pane() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        shown = [footer(app).partition("│")[0].split()]
        await pilot.press("enter")
        shown.append(footer(app).partition("│")[0].split())
        app.workbench.source.code.focus()
        await settle(pilot)
        shown.append(footer(app).partition("│")[0].split())
        assert shown[0][:4] == ["⏎", "Open", "o", "Sort"]
        assert shown[1][:4] == ["←", "Inputs", "→", "Users"]
        assert shown[2] == ["n", "Next", "match"]

    drive(scenario)


@pytest.mark.rotates
@pytest.mark.parametrize("theme", ["nord", "gruvbox", "textual-light", "textual-ansi", "ansi-dark"])
def test_every_theme_of_textual_draws_the_app(theme: str) -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        if theme not in app.available_themes:
            pytest.skip(f"this version of Textual has no theme {theme}")
        app.theme = theme
        await pilot.press("5", "4", "8")
        assert lines(app, "kernels-total")

    drive(scenario)


def test_no_pane_or_widget_hides_the_key_of_a_tab() -> None:
    everywhere, *elsewhere = default_keys()
    tabs = {key for name, keys in everywhere.items() if name.startswith("tab.") for key in keys}
    others = [(name, key) for name, keys in everywhere.items() if not name.startswith("tab.") for key in keys]
    others += [(name, key) for group in elsewhere for name, keys in group.items() for key in keys]
    assert [(name, key) for name, key in others if key in tabs] == []
