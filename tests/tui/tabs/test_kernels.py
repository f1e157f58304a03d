"""The Kernels and Memory tabs on the sample report, with kernels for a GPU."""

import pytest
from textual.pilot import Pilot

from tests.report.sample_kernels import gpu_sample
from tests.tui.driving import drive, lines, lit, rows, table
from tui.app import AotlensApp
from tui.widgets.code import CodeView


def app_with_kernels() -> AotlensApp:
    return AotlensApp("model.py", report=gpu_sample())


def text(app: AotlensApp) -> list[str]:
    return list(app.workbench.query_one("#kernel-text", CodeView).text.lines)


@pytest.mark.rotates
def test_kernels_in_call_order_then_the_dearest_first() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("8")
        total = lines(app, "kernels-total")[0]
        assert total.startswith("2 generated kernels and 1 library call on sm_90 · at least 2.00 µs")
        assert total.endswith(" (an estimate) · moves 48.0 KiB")
        named = [row.split(" | ")[0] for row in rows(app, "kernel-table")]
        assert named == ["addmm", "triton_poi_fused_mul_sigmoid_0", "triton_poi_fused_mul_sigmoid_0"]
        assert rows(app, "kernel-table")[1].split(" | ")[1:3] == ["fw", "0.50"]
        await pilot.press("o")
        assert [row.split(" | ")[2] for row in rows(app, "kernel-table")] == ["1.50", "0.50", ""]

    drive(scenario, app_with_kernels())


@pytest.mark.rotates
def test_a_kernel_tells_what_it_takes_and_lights_its_expressions() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("8", "down")
        assert lines(app, "kernel-detail") == [
            "triton_poi_fused_mul_sigmoid_0  forward, sm_90, generated",
            "costs  at least 0.50 µs (an estimate), set by memory",
            "computes  hidden.sigmoid()  line 23  0.20 µs of it",
            "computes  hidden * hidden.sigmoid()  line 23  0.30 µs of it",
            "uses  XBLOCK=256 4 warps · 40 registers, spills 48 B, 2.0 KiB shared",
            "runs  occupancy 75%, limited by registers · 8 blocks, 0.1 waves",
            "else  XBLOCK=128 4 warps · 32 registers",
            "reads  addmm  8.0 KiB, 16.0 KiB are read for it",
            "node  sigmoid",
            "node  mul_1",
        ]
        assert lit(app) == ["hidden.sigmoid()", "hidden * hidden.sigmoid()"]

    drive(scenario, app_with_kernels())


@pytest.mark.rotates
def test_the_texts_of_a_kernel_one_by_one() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("8", "down", "p")
        assert text(app) == ["import triton"]
        await pilot.press("right_square_bracket")
        assert text(app) == [".version 8.7"]
        await pilot.press("down", "right_square_bracket")  # the later launch has the texts of the first
        assert text(app) == ["MOV R1, c[0x0][0x28]"]
        await pilot.press("home")
        assert text(app) == ["(a library kernel: its code is not available)"]

    drive(scenario, app_with_kernels())


@pytest.mark.rotates
def test_why_two_kernels_are_not_one_leads_to_the_other() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("8", "end")
        told = next(line for line in lines(app, "kernel-detail") if line.startswith("not fused"))
        assert told == (
            "not fused with  triton_poi_fused_mul_sigmoid_0, which writes mul_1 (8.0 KiB): the other one"
            " has to be finished first"
        )
        await pilot.press("enter", "down", "down", "enter")
        assert table(app, "kernel-table").key == "sm_90/forward/1"

    drive(scenario, app_with_kernels())


@pytest.mark.rotates
def test_the_costliest_lines_from_the_overview() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        told = lines(app, "overview-lines")
        assert (
            "gpu       sm_90 · 2 generated kernels, 1 library call · at least 2.00 µs (an estimate)"
            " · moves 48.0 KiB"
        ) in told
        assert "  2.00 µs 100%  hidden * hidden.sigmoid()  line 23" in told
        await pilot.press("slash", *"100%", "enter", "enter")
        assert (app.workbench.pane.TAB, app.focused and app.focused.id) == ("kernels", "line-table")
        assert rows(app, "line-table") == [
            "23 | hidden * hidden.sigmoid() | 2.00 | ██████ | 100% | 16.0 KiB | 8.0 KiB | 2 | "
        ]
        assert lines(app, "kernel-detail")[1:] == [
            "costs  at least 2.00 µs (an estimate) · 4.1 kFLOP",
            "fw  triton_poi_fused_mul_sigmoid_0  0.50 µs",
            "fw  triton_poi_fused_mul_sigmoid_0  0.50 µs",
        ]
        await pilot.press("l")
        assert table(app, "kernel-table").has_focus

    drive(scenario, app_with_kernels())


@pytest.mark.rotates
def test_the_memory_tab_shows_the_curve_and_what_is_alive() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("6")
        assert lines(app, "memory-total") == ["32.0 KiB at the peak: forward, mul_1  line 23"]
        assert [row.split(" | ")[2] for row in rows(app, "alive")] == [
            "addmm in self.up(x)",
            "hidden",
            "sigmoid in hidden.sigmoid()",
            "gated",
        ]
        assert lines(app, "memory-detail")[:2] == [
            "self.up(x)  8.0 KiB",
            "alive  saved, from the forward until the backward of line 22",
        ]
        await pilot.press("p")
        assert table(app, "curve").key == "forward/mul_1"
        assert rows(app, "curve")[3].split(" | ")[:2] == ["32.0 KiB", "+8.0 KiB"]
        assert lit(app) == ["hidden * hidden.sigmoid()"]
        assert lines(app, "memory-detail")[0].startswith("mul_1  32.0 KiB alive while it runs, 100%")

    drive(scenario)
