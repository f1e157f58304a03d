"""Every tab on the sample report: what it says, and the source that each row lights."""

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from aotlens.model import Target
from aotlens.model.dynamo import (
    Cause,
    Compilation,
    Dynamo,
    DynamoFunction,
    DynamoGuard,
    FixOutcome,
    Seconds,
    TriedFix,
)
from aotlens.model.source import Fix
from aotlens.view.tabs.dynamo import NOTHING
from aotlens.view.tabs.trace_state import NOT_RECORDED
from aotlens.view.why import dynamo_summary
from tests.report.sample import sample_report
from tests.report.sample_graph import span
from tests.tui.driving import drive, lines, linked, lit, rows, settle, source, table
from tui.app import AotlensApp

OVERVIEW = """\
What to do first
  1. line 21  `cache` is changed in place and carries a gradient: 2.0 KiB are copied on every call\
  → Enter, then `a`: Return the new value instead

compiled  Block  sample_model.py:8
mode      training · torch.compile · torch 2.13.0
graphs    forward 9 nodes · backward 12 nodes
inputs    4 parameters, 1 buffer, 2 arguments · steps, cache mutated
outputs   3 outputs · 2 alias another tensor
saved     8.0 KiB in 1 value · `default` would save 24.0 KiB
peak      32.0 KiB: forward, mul_1  line 23
time      939 ms  codegen 820 ms, joint 60.0 ms, capture 41.5 ms

Largest saved values
  8.0 KiB  line 22   self.up(x)  expensive to recompute (matrix product) [costly]

On each call the wrapper
  + join forward and backward  parameters need gradients
  + copy mutated inputs back  2.0 KiB per call  `cache` carries a gradient
  + make output views again  two outputs are views
  - 2 steps not needed

Diagnostics
  W AL101  line 21  `cache` is changed in place and carries a gradient: 2.0 KiB are copied on every call
  i AL301  line 22  `self.up(x)` saves 8.0 KiB for the backward, all of the 8.0 KiB saved here"""

COPIED = "`cache` is changed in place and carries a gradient: 2.0 KiB are copied on every call"


STEPS = span("self.steps += 1")
STEP_CAUSE = Cause("self.step == 0", "number", "self.step", "0", "1", STEPS)
WHY = Dynamo(
    functions=(
        DynamoFunction(
            name="Block",
            qualname="Block.forward",
            span=STEPS,
            calls=None,
            compilations=(
                Compilation("0/0", "", (), Seconds(0.5, 0.25, 0.75), None),
                Compilation("0/1", "", (), Seconds(0.5, 0.25, 0.75), STEP_CAUSE),
            ),
            guards=(DynamoGuard("self.step == 0", "self.step", STEPS, 3, None),),
        ),
    ),
    fixes=(
        TriedFix(
            "counter",
            "Block.forward",
            "self.step",
            Fix("Keep `self.step` in a buffer that changes in place", ()),
            FixOutcome(0, 0, 2, 1, None, "2 calls (2 tensors)"),
        ),
    ),
)


def test_the_overview_answers_the_first_questions() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        shown = "\n".join(lines(app, "overview-lines"))
        first, _, frontier = shown.partition("\n\nFrontier")
        assert first == OVERVIEW
        assert frontier.startswith("  3 choices; ▲ marks the compiled choice")

    drive(scenario)


@pytest.mark.rotates
def test_enter_on_a_line_of_the_overview_opens_its_row() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("slash", *"self.up", "enter", "enter")
        assert (app.workbench.pane.TAB, table(app, "saved-table").key) == ("saved", "saved:addmm")
        assert lit(app) == ["self.up(x)"]

    drive(scenario)


@pytest.mark.rotates
def test_enter_on_what_to_do_opens_the_target_that_it_is_about() -> None:
    first, second = sample_report().targets
    report = replace(sample_report(), targets=(replace(first, diagnostics=()), with_copy(second)))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert lines(app, "overview-lines")[0] == "What to do first"
        await pilot.press("enter")
        await settle(pilot)
        chosen = table(app, "diagnostic-table")
        assert (app.target, app.workbench.pane.TAB) == (report.targets[1], "diagnostics")
        assert (
            rows(app, "diagnostic-table")[chosen.cursor].split(" | ")[1],
            app.workbench.targets.cursor,
        ) == (
            "AL101",
            1,
        )
        await pilot.press("a")
        await settle(pilot)
        assert app.screen is not app.workbench  # the fix, to be confirmed

    drive(scenario, AotlensApp("model.py", report=report))


def with_copy(target: Target) -> Target:
    """The target with the finding of another one that has a fix."""
    (copied,) = (each for each in sample_report().targets[0].diagnostics if each.code == "AL101")
    return replace(target, diagnostics=(copied,))


def test_inputs_and_outputs_say_how_each_is_handled() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("2")
        assert rows(app, "inputs") == [
            "up.weight | parameter | f32[64, 16] | 4.0 KiB | read, needs grad | ",
            "up.bias | parameter | f32[64] | 256 B | read, needs grad | ",
            "down.weight | parameter | f32[16, 64] | 4.0 KiB | read, needs grad | ",
            "down.bias | parameter | f32[16] | 64 B | read, needs grad | ",
            "steps | buffer | f32[] | 4 B | mutated in the graph | 20",
            "x | argument | f32[32, 16] | 2.0 KiB | read | ",
            "cache | argument | f32[32, 16] | 2.0 KiB | copied back | 21",
        ]
        assert rows(app, "outputs") == [
            "out[0] | f32[32, 16] | 2.0 KiB | new, has grad | 24",
            "out[1] | f32[2048] | 8.0 KiB | view of an intermediate, has grad | 24",
            "out[2] | f32[16] | 64 B | view of cache, has grad | 25",
        ]
        await pilot.press("end")
        assert lit(app) == ["cache.mul_(0.9)"]
        assert lines(app, "ledger-detail") == [
            "cache  argument",
            "f32[32, 16]  strides (16, 1)  cpu · requires grad",
            "carries a gradient, so autograd must see the write: the wrapper copies it back",
            "copied back",
            "mutated by cache.mul_(0.9)  line 21  aten.mul_.Tensor",
        ]

    drive(scenario)


def test_saved_values_stand_by_size_with_their_reasons_and_uses() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        assert lines(app, "saved-total") == [
            (
                "8.0 KiB in 1 value · 14.0 KiB alive anyway · 16.0 KiB in 2 values recomputed"
                " · policy min-cut · `default` would save 24.0 KiB"
            )
        ]
        assert rows(app, "saved-table") == [
            (
                "8.0 KiB | ████████ | self.up(x) | f32[32, 64] | 22 | 1 | costly | expensive to recompute"
                " (matrix product)"
            ),
            "0 |  | hidden | f32[32, 64] | 22 | 2 | output | kept alive by an output",
            "0 |  | down.weight | f32[16, 64] | 24 | 1 | parameter | a parameter, alive anyway",
            "0 |  | x | f32[32, 16] | 22 | 1 | input | an argument, alive anyway",
        ]
        assert rows(app, "recomputed") == [
            "8.0 KiB | hidden.sigmoid() | 8.2 kFLOP | 23 | choice | cheap to compute again",
            "8.0 KiB | hidden * hidden.sigmoid() | 2.0 kFLOP | 23 | choice | cheap to compute again",
        ]
        await pilot.press("down")
        assert lines(app, "saved-detail") == [
            "hidden  f32[32, 64]  8.0 KiB · held by an output",
            "why  kept alive by an output [output] · nothing can change it",
            "node  gelu  aten.gelu.default",
            "read by  mul_2 in the backward of line 23",
            "read by  sigmoid in the backward of line 23",
        ]

    drive(scenario)


@pytest.mark.rotates
def test_a_use_of_a_saved_value_leads_into_the_backward_graph() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5", "enter", "end", "enter")
        assert (app.workbench.pane.TAB, table(app, "nodes").key) == ("graphs", "gelu_backward")

    drive(scenario)


@pytest.mark.rotates
def test_wrapper_steps_and_module_text_point_at_each_other() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("7", "down")
        assert rows(app, "steps") == [
            "+ | join forward and backward |  |  | parameters need gradients",
            "+ | copy mutated inputs back | 2.0 KiB | 21 | `cache` carries a gradient",
            "+ | make output views again |  | 24, 25 | two outputs are views",
            "- | drop duplicate arguments |  |  | no argument is passed twice",
            "- | restore autocast |  |  | autocast was off while tracing",
        ]
        module = app.workbench.query_one("#module")
        assert (module.block, lit(app)) == (range(17, 18), ["cache.mul_(0.9)"])  # type: ignore[attr-defined]
        await pilot.press("tab", "tab", "down", "down")
        assert (table(app, "steps").key, lit(app)) == (
            "step:make output views again",
            ["hidden.view(-1)", "cache[0]"],
        )

    drive(scenario)


def test_diagnostics_show_their_fixes_as_differences() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("9")
        assert rows(app, "diagnostic-table") == [
            f"W | AL101 | 21 | {COPIED} | 2",
            "i | AL301 | 22 | `self.up(x)` saves 8.0 KiB for the backward, all of the 8.0 KiB saved here | ",
        ]
        assert lines(app, "diagnostic-detail") == [
            "AL101  warning",
            COPIED,
            "line 25  this output is a view of it",
            "",
            "fix  Return the new value instead  a applies it",
            "  -        cache.mul_(0.9)",
            "  +        cache = cache * 0.9",
            "",
            "fix  Add a note  a applies it",
            "  -        cache.mul_(0.9)",
            "  +        cache.mul_(0.9)  # copies 2.0 KiB",
            "aotlens rule AL101  explains this diagnostic",
        ]
        assert lit(app) == ["cache.mul_(0.9)"]

    drive(scenario)


@pytest.mark.rotates
def test_moving_in_the_source_marks_the_rows_of_the_line() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        source(app).focus()
        source(app).place_cursor(22)
        await pilot.press("down")
        assert (source(app).cursor, linked(app, "nodes")) == (23, ["sigmoid", "mul_1"])
        assert table(app, "nodes").key == "sigmoid"
        await pilot.press("down")
        assert linked(app, "nodes") == ["addmm_1", "add"]

    drive(scenario)


@pytest.mark.rotates
def test_columns_are_exact_behind_characters_of_several_bytes() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("2", "tab", "down")
        assert (source(app).cursor, lit(app)) == (24, ["hidden.view(-1)"])

    drive(scenario)


@pytest.mark.rotates
def test_another_target_fills_every_tab_anew() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        assert rows(app, "targets") == [
            "Block | train | 8.0 KiB | 1W | 8",
            "score | infer |  |  | 29",
        ]
        await pilot.press("5", "t", "down", "enter")
        assert (lines(app, "saved-total"), rows(app, "saved-table")) == (
            ["inference: nothing is saved for a backward"],
            [],
        )
        await pilot.press("4")
        assert table(app, "nodes").key == "mm"
        await pilot.press("0")
        assert app.workbench.query_one("#log-text").text.lines == (NOT_RECORDED,)  # type: ignore[attr-defined]

    drive(scenario)


@pytest.mark.rotates
def test_why_explains_what_dynamo_did() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("w")
        assert app.workbench.pane.TAB == "why"
        shown = lines(app, "why-lines")
        assert shown[0] == dynamo_summary(WHY)
        assert shown[2].startswith("  self.step changes: 1 recompilation")
        assert "    ✓ tested: Keep `self.step` in a buffer that changes in place" in shown
        assert shown[shown.index("Guards  checked before each call") :][:3] == [
            "Guards  checked before each call",
            "  Block.forward  3 checks",
            "       3 self.step  sample_model.py:20  self.step == 0",
        ]
        await pilot.press("home", "down")
        assert lit(app) == ["self.steps += 1"]

    drive(scenario, AotlensApp("model.py", report=replace(sample_report(), dynamo=WHY)))


@pytest.mark.rotates
def test_why_without_dynamo() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("w")
        assert lines(app, "why-lines") == [NOTHING]

    drive(scenario)
