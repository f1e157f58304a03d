"""The keys that act everywhere."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.pilot import Pilot
from textual.screen import ModalScreen

from aotlens.model import Report
from aotlens.view.tabs.tables.rows import Line, Part
from tests.report.sample import MODEL, sample_report
from tests.tui.driving import NARROW, drive, lines, lit, rows, select, settle, source, table
from tui import editing
from tui.app import AotlensApp
from tui.panes.registry import CHOICES
from tui.screens import ConfirmScreen, HelpScreen
from tui.widgets.key_bar import KeyBar
from tui.widgets.lines import LineList
from tui.widgets.theme import DARK, LIGHT


@pytest.mark.rotates
def test_digits_open_the_tabs_and_focus_their_main_list() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        opened = []
        for key in "1234567890":
            await pilot.press(key)
            opened.append((app.workbench.pane.TAB, app.focused.id if app.focused else None))
        assert opened == [
            ("overview", "overview-lines"),
            ("ledger", "inputs"),
            ("stages", "diff"),
            ("graphs", "nodes"),
            ("saved", "saved-table"),
            ("memory", "alive"),
            ("wrapper", "steps"),
            ("kernels", "kernel-table"),
            ("diagnostics", "diagnostic-table"),
            ("log", "log-text"),
        ]

    drive(scenario)


@pytest.mark.rotates
def test_tab_goes_through_the_panes_and_back() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("2")
        visited = []
        for key in ["tab"] * 5 + ["shift+tab"]:
            await pilot.press(key)
            visited.append(app.focused.id if app.focused else None)
        assert visited == ["outputs", "ledger-detail", "targets", "source", "inputs", "source"]

    drive(scenario)


@pytest.mark.rotates
def test_slash_filters_rows_and_escape_brings_them_back() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4", "slash", *"aten.mul", "enter")
        assert [row.split(" | ")[0] for row in rows(app, "nodes")] == ["mul", "mul_1"]
        assert (app.focused.id if app.focused else None, lit(app)) == ("nodes", ["cache.mul_(0.9)"])
        await pilot.press("escape")
        assert (len(rows(app, "nodes")), table(app, "nodes").key) == (17, "mul")

    drive(scenario)


@pytest.mark.rotates
def test_slash_searches_in_the_source() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        source(app).focus()
        await pilot.press("slash", *"hidden", "enter")
        places = [source(app).cursor]
        for key in ("n", "n", "N"):
            await pilot.press(key)
            places.append(source(app).cursor)
        assert places == [22, 23, 24, 23]

    drive(scenario)


@pytest.mark.rotates
def test_y_copies_the_row_and_the_line() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("7", "y")
        copied = [app.clipboard]
        source(app).focus()
        source(app).place_cursor(21)
        await pilot.press("y")
        assert [*copied, app.clipboard] == [
            "+\tjoin forward and backward\t\t\tparameters need gradients",
            "        cache.mul_(0.9)",
        ]

    drive(scenario)


@pytest.mark.rotates
def test_s_saves_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5", "s")

    drive(scenario)
    assert [path.name for path in tmp_path.iterdir()] == ["aotlens-Block-saved.svg"]
    assert (tmp_path / "aotlens-Block-saved.svg").read_text().startswith("<svg")


@pytest.mark.rotates
def test_e_opens_the_editor_at_the_lit_line(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setenv("VISUAL", "code --wait")
    monkeypatch.setattr(
        editing, "subprocess", SimpleNamespace(run=lambda command, check: commands.append(command))
    )

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        monkeypatch.setattr(app, "suspend", pytest.MonkeyPatch.context)
        await pilot.press("2", "end", "e")

    drive(scenario)
    assert commands == [["code", "--wait", "--goto", f"{MODEL}:21"]]


@pytest.mark.rotates
def test_question_mark_lists_the_keys_of_the_pane() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        shown = [line.text for line in app.screen.lines]
        assert shown[:3] == [
            "In Graph",
            "[            Go to the previous graph.",
            "]            Go to the next graph.",
        ]
        assert "Everywhere" in shown
        await pilot.press("escape")
        assert not isinstance(app.screen, ModalScreen)

    drive(scenario)


@pytest.mark.rotates
def test_the_line_of_keys_hides_none_on_a_narrow_screen_and_takes_clicks() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        bar = app.workbench.query_one(KeyBar)
        for key, _, _ in CHOICES:
            await pilot.press(key)
            await settle(pilot)
            drawn = " ".join(bar.render_line(row).text for row in range(bar.size.height))
            wanted = [each.binding for each in app.screen.active_bindings.values() if each.binding.show]
            assert [binding.key for binding in wanted if binding.description not in drawn] == []
            assert "palette" in drawn
        await pilot.press("w")
        place = bar.render_line(0).text.index("/ Filter")
        assert await pilot.click(bar, offset=(place, 0))
        assert app.focused is not None
        assert app.focused.id == "filter"

    drive(scenario, size=NARROW)


@pytest.mark.rotates
def test_a_shows_the_fix_and_y_writes_it(tmp_path: Path) -> None:
    copy = tmp_path / "sample_model.py"
    copy.write_text(MODEL.read_text(encoding="utf-8"), encoding="utf-8")
    report = moved(sample_report(), copy)

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("9", "a", "right")
        assert isinstance(app.screen, ConfirmScreen)
        assert [line.text for line in app.screen.choices[1][1]] == [
            "  -        cache.mul_(0.9)",
            "  +        cache.mul_(0.9)  # copies 2.0 KiB",
        ]
        await pilot.press("left", "y")
        await settle(pilot)
        assert source(app).text.raw[20] == "        cache = cache * 0.9"

    drive(scenario, AotlensApp("model.py", report=report))
    before, after = MODEL.read_text(encoding="utf-8"), copy.read_text(encoding="utf-8")
    assert after == before.replace("cache.mul_(0.9)", "cache = cache * 0.9")


def moved(report: Report, path: Path) -> Report:
    """The report as if the model stood elsewhere."""
    from aotlens.model import dumps, loads

    return loads(dumps(report).replace(str(MODEL), str(path)))


def test_a_long_line_of_a_fix_is_shown_whole() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        app.push_screen(ConfirmScreen((("fix", (Line((Part("+ " + "word " * 40 + "end"),)),)),)))
        await settle(pilot)
        rows = app.screen.query_one(LineList)
        shown = [rows.row_text(index, 80).plain for index in range(rows.row_count)]
        assert len(shown) > 1
        assert shown[-1].endswith("end")

    drive(scenario)


@pytest.mark.rotates
def test_n_leaves_the_file_alone() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        before = MODEL.read_bytes()
        await pilot.press("9", "a", "n")
        assert (app.screen is app.workbench, MODEL.read_bytes()) == (True, before)

    drive(scenario)


@pytest.mark.rotates
def test_d_changes_between_dark_and_light() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        themes = [app.theme]
        for _ in range(2):
            await pilot.press("d")
            themes.append(app.theme)
        assert themes == [DARK.name, LIGHT.name, DARK.name]

    drive(scenario)


@pytest.mark.rotates
def test_z_gives_the_screen_to_one_half() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        left, right = app.workbench.query_one("#left"), app.workbench.query_one("#results")
        await pilot.press("z")
        zoomed = (left.display and left.region.width, right.region.width)
        await pilot.press("z")
        assert (zoomed, left.region.width > 0) == ((False, 120), True)

    drive(scenario)


@pytest.mark.rotates
def test_a_narrow_screen_shows_the_targets_while_they_are_used() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        targets = table(app, "targets")
        shown = [targets.display]
        await pilot.press("t")
        await settle(pilot)
        shown.append(targets.display)
        await pilot.press("down", "enter")
        await settle(pilot)
        assert ([*shown, targets.display], app.target and app.target.name) == ([False, True, False], "score")

    drive(scenario, size=NARROW)


@pytest.mark.rotates
def test_a_click_selects_and_a_click_on_a_tab_opens_it() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.click("#tabs", offset=(60, 0))
        assert app.workbench.pane.TAB == "wrapper"
        await pilot.click("#steps", offset=(8, 2))
        assert (table(app, "steps").key, lit(app)) == ("step:copy mutated inputs back", ["cache.mul_(0.9)"])

    drive(scenario)


@pytest.mark.rotates
def test_rows_of_a_filter_that_matches_nothing_say_so() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        table(app, "saved-table").filter("zzz")
        await settle(pilot)
        assert table(app, "saved-table").empty_text() == "no row matches 'zzz'"
        await select(app, pilot, "recomputed", "recomputed:sigmoid")
        assert lines(app, "saved-detail")[0] == "hidden.sigmoid()  8.0 KiB not saved, 8.2 kFLOP more"

    drive(scenario)
