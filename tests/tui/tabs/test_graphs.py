"""The stages one at a time, the graphs that run, and the drawing of a node's neighbours."""

import pytest
from textual.pilot import Pilot

from aotlens.view.tabs.drawn_graph.drawing import Neighbour, draw
from tests.tui.driving import drive, lines, linked, lit, rows, select, settle, table
from tui.app import AotlensApp
from tui.panes.graphs import GraphsPane
from tui.panes.stages import StagesPane
from tui.widgets.code import CodeView
from tui.widgets.node_map import NodeMap


def stages(app: AotlensApp) -> StagesPane:
    return app.workbench.query_one(StagesPane)


def graphs(app: AotlensApp) -> GraphsPane:
    return app.workbench.query_one(GraphsPane)


def sides(column: int) -> str:
    """`<<` for the inputs of inputs, `.` for the node itself."""
    return ("<" if column < 0 else ">") * abs(column) or "."


def drawn(app: AotlensApp) -> list[str]:
    """The boxes of the drawing: side, name, and whether it stands in the other graph."""
    boxes = app.workbench.query_one(NodeMap).drawing.boxes
    return [f"{sides(box.column)} {box.item.name}{' across' if box.item.across else ''}" for box in boxes]


@pytest.mark.rotates
def test_a_stage_shows_what_it_changed() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("3")
        down = "addmm_1 = addmm(down_bias, mul_1, down_weight)"
        assert lines(app, "stage-caption") == ["captured → functional  3 added, 4 removed, 13 kept"]
        assert rows(app, "diff") == [
            "⋯ | ⋯ 7 unchanged nodes | ⋯ | ",
            "+ |  | add_1 = add.Tensor(steps) | 20",
            "+ | copies the new value to steps | copy_ = copy_(steps, add_1) | 20",
            "+ |  | mul = mul.Tensor(cache) | 21",
            "- | add_ = add_.Tensor(steps) |  | 20",
            "- | mul_ = mul_.Tensor(cache) |  | 21",
            "⋯ | ⋯ 4 unchanged nodes | ⋯ | ",
            "- | view = view(gelu) |  | 24",
            f"  | {down} | {down} | 24",
            "  | add = add.Tensor(x, addmm_1) | add = add.Tensor(x, addmm_1) | 24",
            "- | select = select.int(mul_) |  | 25",
            "~ | return …, view, select | return mul, …, gelu | 25",
        ]
        await pilot.press("home", "enter")
        assert len(rows(app, "diff")) == 12 + 6

    drive(scenario)


@pytest.mark.rotates
def test_stepping_through_the_stages_stays_on_the_node() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("3", "u")
        await select(app, pilot, "diff", "sigmoid")
        seen = []
        for _ in range(4):
            await pilot.press("right_square_bracket")
            seen.append((stages(app).stage, table(app, "diff").key))
        assert seen == [(name, "sigmoid") for name in ("joint", "partition", "forward", "backward")]
        await select(app, pilot, "diff", "sigmoid_backward")
        await pilot.press("left_square_bracket")
        assert lines(app, "stage-caption") == [
            "sigmoid_backward is not in forward; the next stages may have it"
        ]
        await pilot.press("left_square_bracket")
        assert (stages(app).stage, table(app, "diff").key) == ("partition", "sigmoid_backward")

    drive(scenario)


@pytest.mark.rotates
def test_a_node_is_told_through_all_stages() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("3", "u")
        await select(app, pilot, "diff", "gelu")
        assert lines(app, "follow") == [
            "gelu is unchanged",
            " ○ captured   line 22  gelu = gelu(addmm)  f32[32, 64]",
            " ● functional line 22  gelu = gelu(addmm)  f32[32, 64]",
            " ○ joint      line 22  gelu = gelu(addmm)  f32[32, 64]",
            " ○ partition           runs in: forward · saved, 0 B: kept alive by an output [output]",
            " ○ forward    line 22  gelu = gelu(addmm)  f32[32, 64]",
            " ○ backward   line 19  gelu: input  f32[32, 64]  passed by the forward",
        ]
        await pilot.press("tab", "down", "down", "down", "down", "enter")
        assert (app.workbench.pane.TAB, stages(app).stage, table(app, "diff").key) == (
            "stages",
            "forward",
            "gelu",
        )

    drive(scenario)


@pytest.mark.rotates
def test_the_program_text_stands_on_the_selected_node() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("3", "u")
        await select(app, pilot, "diff", "sigmoid")
        await pilot.press("p")
        program = app.workbench.query_one("#stage-text", CodeView)
        assert (
            program.text.lines[program.cursor - 1]
            == "    sigmoid = aten.sigmoid.default(gelu)  # f32[32, 64]"
        )
        await pilot.press("down")
        assert (table(app, "diff").key, lit(app)) == ("mul_1", ["hidden * hidden.sigmoid()"])

    drive(scenario)


@pytest.mark.rotates
def test_a_node_is_drawn_between_what_it_reads_and_who_reads_it() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        await select(app, pilot, "nodes", "gelu")
        assert lit(app) == ["functional.gelu(self.up(x))"]
        assert drawn(app) == [
            "< addmm",
            ". gelu",
            "> sigmoid",
            "> mul_1",
            "> output",
            "> mul_2 across",
            "> sigmoid across",
        ]
        assert lines(app, "neighbours") == [
            " ● gelu  aten.gelu  f32[32, 64]  8.0 KiB · strides (64, 1) · cpu  line 22",
            "   saved  0 B, kept alive by an output [output]",
            "   from  gelu in joint: through the stages",
        ]

    drive(scenario)


@pytest.mark.rotates
def test_enter_walks_the_drawing_and_backspace_walks_back() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        await select(app, pilot, "nodes", "gelu")
        walked = [table(app, "nodes").key]
        for keys in (("enter", "right", "enter"), ("right", "enter"), ("left", "enter"), ("backspace",)):
            await pilot.press(*keys)
            walked.append(table(app, "nodes").key)
        assert walked == ["gelu", "mul_1", "addmm_1", "mul_1", "addmm_1"]

    drive(scenario)


@pytest.mark.rotates
def test_both_graphs_stand_side_by_side_with_their_nodes_linked() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4", "b")
        await settle(pilot)
        await select(app, pilot, "nodes", "sigmoid")
        assert linked(app, "partner") == ["sigmoid"]
        table(app, "partner").focus()
        await pilot.press("enter")
        assert (graphs(app).stage_name, table(app, "nodes").key) == ("backward", "sigmoid")

    drive(scenario)


def test_a_drawing_joins_its_lines_and_cuts_what_does_not_fit() -> None:
    read = [Neighbour("view_12", "view", "f32[8, 4]"), Neighbour("weight", "input", is_input=True)]
    node, users = Neighbour("mm_with_a_long_name", "mm"), [Neighbour("gelu", "gelu")]

    edges = {*((item.name, node.name) for item in read), (node.name, "gelu")}

    def rows_of(height: int) -> list[str]:
        drawing = draw({-1: read, 0: (node,), 1: users}, edges, (46, height))
        return ["".join(part.text for part in row).rstrip() for row in drawing.rows]

    assert rows_of(4) == ["", "view_12  view ─┬──▶ ● mm_wit…name────▶ gelu", "weight  input ─╯", ""]
    assert rows_of(9) == [
        "",
        "╭ view_12 ───╮",
        "│ view       ├─╮   ┏ mm_wi…name ┓",
        "╰────────────╯ │   ┃ mm         ┃     ╭ gelu ╮",
        "╭ weight ────╮ ├──▶┃            ┃────▶│ gelu │",
        "│ input      ├─╯   ┃            ┃     ╰──────╯",
        "╰────────────╯     ┗━━━━━━━━━━━━┛",
        "",
        "",
    ]
