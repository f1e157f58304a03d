"""The frontier, the budget, what-ifs and certificates on the screen."""

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from aotlens.model import FrontierPoint, Target
from aotlens.model.failure import Failure
from aotlens.view.tabs.saved import BAR_WIDTH, saved_listing
from aotlens.view.tabs.tables.rows import Line, Part
from aotlens.view.tabs.tradeoffs import frontier_plot, tradeoff_lines
from tests.report.sample import sample_report, training_target
from tests.report.sample_partition import chosen_partition
from tests.tui.driving import NARROW, FakeTracing, drive, lines, select, settle, table
from tui.app import AotlensApp

PRICE = "the next cheapest set costs 1.5 KiB more and 2.0 kFLOP less, saving sigmoid and mul_1 instead"


def shown(found: tuple[Line, ...]) -> list[str]:
    return [line.text.rstrip() for line in found]


def app_with_choices() -> AotlensApp:
    target = replace(training_target(), partition=chosen_partition())
    return AotlensApp("model.py", report=replace(sample_report(), targets=(target,)))


def test_the_frontier_is_plotted_with_what_was_compiled() -> None:
    partition = replace(chosen_partition(), frontier=(FrontierPoint(8192, 20480), FrontierPoint(24576, 0)))
    assert shown(tuple(frontier_plot(partition))) == [
        "Frontier  2 choices; ▲ marks the compiled choice",
        " 20.5 kFLOP ┤█▇▆▅▄▃▂▁",
        "            │█████████▇▆▅▄▃▂▁",
        "            │█████████████████▇▆▅▃▂▁",
        "            │████████████████████████▇▆▅▄▃▂▁",
        "     0 FLOP ┤████████████████████████████████▇▆▅▄▃▂▁",
        "            └────────────────────▲───────────────────",
        "      saved  8.0 KiB                         24.0 KiB",
    ]


def test_amounts_far_apart_are_plotted_on_a_log_scale() -> None:
    points = tuple(FrontierPoint(8192 + 512 * step, 8 << (32 - step)) for step in range(33))
    plotted = shown(tuple(frontier_plot(replace(chosen_partition(), frontier=points))))
    assert plotted[0] == "Frontier  33 choices, work on a log scale; ▲ marks the compiled choice"
    assert [len(line) for line in plotted[1:6]] == [23, 31, 41, 50, 53]


def test_nothing_to_choose_nothing_to_show() -> None:
    assert tradeoff_lines(replace(chosen_partition(), frontier=(), budget=None, what_if=())) == ()


@pytest.mark.rotates
def test_the_saved_pane_says_what_else_could_be() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        found = lines(app, "tradeoffs")
        assert found[0].startswith("budget 16.0 KiB: 16.0 KiB saved, 10.2 kFLOP recomputed, at most 2.3%")
        assert found[1] == "what if  recompute:hidden"
        assert found[2] == "           saved    16.0 KiB →   17.5 KiB  +1.5 KiB"
        await select(app, pilot, "saved-table", "saved:gelu")
        assert lines(app, "saved-detail") == [
            "hidden  f32[32, 64]  8.0 KiB",
            "why  the least recomputation within the memory budget [budget] · chosen by the solver",
            "!  overrules an activation checkpoint",
            "above  recomputing it would need addmm in self.up(x) (expensive to recompute)",
            "below  mul_2 needs it  line 23",
            f"else  {PRICE}",
            "node  gelu  aten.gelu.default",
            "read by  mul_2 in the backward of line 23",
            "read by  sigmoid in the backward of line 23",
        ]

    drive(scenario, app_with_choices())


@pytest.mark.rotates
def test_a_recomputed_value_leads_to_its_twin() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        await select(app, pilot, "recomputed", "recomputed:sigmoid")
        assert lines(app, "saved-detail")[1:] == [
            "why  an override in the policy [user]",
            "node  sigmoid  line 23",
            "counterpart  sigmoid in the forward",
        ]
        await pilot.press("enter", "end", "enter")
        assert (app.workbench.pane.TAB, table(app, "nodes").key) == ("graphs", "sigmoid")

    drive(scenario, app_with_choices())


def test_a_short_screen_keeps_the_table_and_has_the_rest_in_the_overview() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert "what if  recompute:hidden" in lines(app, "overview-lines")
        await pilot.press("5")
        assert table(app, "saved-table").size.height >= 2
        assert not app.workbench.query_one("#tradeoffs").display

    drive(scenario, app_with_choices(), size=NARROW)


@pytest.mark.rotates
def test_a_key_asks_for_the_other_way_and_a_refusal_leaves_what_is_shown() -> None:
    tracing = FakeTracing()
    app = AotlensApp("model.py", tracing=tracing)
    report = replace(sample_report(), targets=(replace(training_target(), partition=chosen_partition()),))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(report)
        await settle(pilot)
        await pilot.press("5")
        free = next(saved.node for saved in chosen_partition().saved if saved.freedom == "choice")
        await select(app, pilot, "saved-table", f"saved:{free}")
        await pilot.press("f")
        assert [asked.what_if for asked in tracing.asked] == [(), (f"recompute:{free}",)]
        tracing.fail(Failure("user", f"`recompute:{free}` cannot be: its draw would differ"))
        await settle(pilot)
        assert app.report is report
        assert [note.message for note in app._notifications] == [
            f"`recompute:{free}` cannot be: its draw would differ"
        ]
        assert table(app, "saved-table").has_focus

    drive(scenario, app)


def layered_target() -> Target:
    """Three identical layers that each save a value of 1 MiB."""
    partition = chosen_partition()
    free = next(saved for saved in partition.saved if saved.freedom == "choice")
    layers = tuple(replace(free, node=f"wide_{n}", layer=f"h.{n}", bytes=1 << 20) for n in range(3))
    return replace(training_target(), partition=replace(partition, saved=(*partition.saved, *layers)))


@pytest.mark.rotates
def test_a_key_on_folded_layers_asks_for_all_of_them() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(replace(sample_report(), targets=(layered_target(),)))
        await settle(pilot)
        await pilot.press("5", "home", "f")
        assert tracing.asked[-1].what_if == ("recompute:wide_0,recompute:wide_1,recompute:wide_2",)

    drive(scenario, AotlensApp("model.py", tracing=tracing))


def test_folded_and_single_rows_are_drawn_on_one_scale() -> None:
    listing = saved_listing(layered_target())
    assert listing.group_cells is not None
    folded = listing.group_cells(listing.groups[0])[1]
    single = listing.rows.cells(listing.groups[0].positions[0])[1]
    assert isinstance(folded, Part)
    assert isinstance(single, Part)
    assert folded.text.count("█") == BAR_WIDTH
    assert single.text.count("█") == BAR_WIDTH // 3


@pytest.mark.rotates
def test_what_cannot_be_changed_says_why() -> None:
    tracing = FakeTracing()
    forced = replace(
        chosen_partition().saved[0],
        freedom="forced",
        reason=("recomputing it would give other random numbers"),
    )
    partition = replace(chosen_partition(), saved=(forced,))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(replace(sample_report(), targets=(replace(training_target(), partition=partition),)))
        await settle(pilot)
        await pilot.press("5", "f")
        assert len(tracing.asked) == 1
        assert [note.message for note in app._notifications] == [
            f"{forced.node} cannot be changed: recomputing it would give other random numbers [costly]"
        ]

    drive(scenario, AotlensApp("model.py", tracing=tracing))
