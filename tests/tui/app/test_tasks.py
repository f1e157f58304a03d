"""The five tasks of docs/tasks.md: its keys lead to the answer."""

from dataclasses import replace

import pytest
from textual.events import Key
from textual.pilot import Pilot

from tests.report.sample import sample_report
from tests.report.sample_kernels import gpu_sample
from tests.tui.driving import NARROW, FakeTracing, drive, lines, lit, rows, screen_text, settle
from tests.tui.tabs.test_panes import WHY
from tui.app import AotlensApp


@pytest.mark.rotates
def test_the_largest_saved_value_and_its_cost_take_two_keys() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(sample_report())
        await settle(pilot)
        await pilot.press("5")
        sizes = [row.split(" | ")[0] for row in rows(app, "saved-table")]
        assert sizes[0] == "8.0 KiB"
        assert lines(app, "saved-detail")[0].startswith("self.up(x)")
        await pilot.press("f")
        assert [questions.what_if for questions in tracing.asked][-1] == ("recompute:addmm",)

    drive(scenario, AotlensApp("model.py", tracing=tracing))


def test_keys_typed_at_once_go_to_the_tab_that_the_first_opens() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(sample_report())
        await settle(pilot)
        for key in "5f":
            app.post_message(Key(key, key))  # not `press`, which waits in between
        await settle(pilot)
        assert [questions.what_if for questions in tracing.asked][-1] == ("recompute:addmm",)

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_the_line_that_copies_most_takes_three_keys() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("7", "o", "home")
        first = rows(app, "steps")[0].split(" | ")
        assert first[2] == "2.0 KiB"
        assert lit(app) == ["cache.mul_(0.9)"]

    drive(scenario)


@pytest.mark.rotates
def test_why_a_function_recompiles_takes_one_key() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("w")
        assert any("self.step changes: 1 recompilation" in line for line in lines(app, "why-lines"))

    drive(scenario, AotlensApp("model.py", report=replace(sample_report(), dynamo=WHY)))


@pytest.mark.rotates
def test_why_the_slowest_kernel_of_a_phase_is_not_fused() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("8", "o", "slash", *"forward", "enter", "home")
        assert [row.split(" | ")[2] for row in rows(app, "kernel-table")] == ["1.50", "0.50", ""]
        assert any(line.startswith("not fused with") for line in lines(app, "kernel-detail")[:5])
        assert "not fused with" in screen_text(app)

    drive(scenario, AotlensApp("model.py", report=gpu_sample()))
    drive(scenario, AotlensApp("model.py", report=gpu_sample()), NARROW)
