"""Choosing a GPU in the app, and the Kernels tab while its kernels are generated."""

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from tests.report.sample import sample_report
from tests.tui.driving import FakeTracing, drive, lines, screen_text, settle, table
from tui.app import AotlensApp
from tui.picking import GpuScreen
from tui.widgets.table import VirtualTable


@pytest.mark.rotates
def test_a_chosen_gpu_is_traced_for_in_the_kernels_tab() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(sample_report())
        await settle(pilot)
        await pilot.press("ctrl+g")
        assert isinstance(app.screen, GpuScreen)
        gpus = app.screen.query_one(VirtualTable)
        assert (gpus.cursor, gpus.row_copy(0).split("\t")[1]) == (0, "no kernels")
        gpus.select("gpu:H100 SXM")
        await pilot.press("enter")
        assert (tracing.gpu, len(tracing.started)) == ("H100 SXM", 2)
        assert app.workbench.pane.TAB == "kernels"
        await pilot.press("c")
        assert isinstance(app.screen, GpuScreen)
        assert app.screen.query_one(VirtualTable).row_copy(16).startswith("✓\tH100 SXM\tsm_90\t80 GiB")
        await pilot.press("enter")
        assert len(tracing.started) == 2  # the same GPU again

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_kernels_appear_while_they_are_generated() -> None:
    tracing = FakeTracing()

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        tracing.answer(sample_report())
        await settle(pilot)
        await pilot.press("8", "r")
        shown = app.workbench.query_one("#compiling")
        assert not shown.display
        tracing.progress("kernels for sm_90: 1 of 45: triton_a", "Block.forward")
        tracing.progress("kernels for sm_90: 2 of 45: triton_b", "Block.forward")
        await settle(pilot)
        assert shown.display
        assert lines(app, "compiling") == [
            "› generating kernels for sm_90 (2 of 45)",
            "  + triton_b",
            "  + triton_a",
        ]
        tracing.answer(sample_report())
        await settle(pilot)
        assert not shown.display

    drive(scenario, AotlensApp("model.py", tracing=tracing))


@pytest.mark.rotates
def test_a_saved_report_has_no_gpu_to_choose() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("8", "c", "ctrl+g")
        assert not isinstance(app.screen, GpuScreen)
        assert table(app, "kernel-table").has_focus
        assert screen_text(app).count("no kernels were generated") == 1

    kernelless = tuple(replace(target, kernels=()) for target in sample_report().targets)
    drive(scenario, AotlensApp("model.py", report=replace(sample_report(), targets=kernelless)))
