"""The drawing over several hops: where there is room, along the arrow keys, with layers folded."""

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from aotlens.model import Report
from aotlens.view.tabs.drawn_graph.canvas import Net, Wire, in_lanes
from aotlens.view.tabs.drawn_graph.drawing import Neighbour, draw
from aotlens.view.tabs.drawn_graph.graph import StageIndex
from aotlens.view.tabs.drawn_graph.neighbours import Neighbourhood
from tests.report.sample import sample_report
from tests.tui.driving import drive, lit, select, table
from tui.app import AotlensApp
from tui.widgets.node_map import NodeMap


def neighbourhood(report: Report) -> Neighbourhood:
    target = report.targets[0]
    forward, backward = target.stage("forward"), target.stage("backward")
    assert forward is not None
    assert backward is not None
    return Neighbourhood(target, StageIndex(forward), StageIndex(backward))


def hops(graph: Neighbourhood, name: str, width: int, *, unfolded: bool = False) -> dict[int, list[str]]:
    columns: dict[int, list[str]] = {}
    for box in graph.drawing(name, (width, 30), unfolded=unfolded).boxes:
        columns.setdefault(box.column, []).append(box.item.name)
    return columns


def test_more_hops_are_drawn_where_there_is_room() -> None:
    graph = neighbourhood(sample_report())
    assert sorted(hops(graph, "sigmoid", 60)) == [-1, 0, 1]
    wide = hops(graph, "sigmoid", 160)
    assert {-2, -1, 0, 1, 2} <= set(wide)
    assert wide[-1] == ["gelu"]
    assert wide[1][0] == "mul_1"
    for width in (30, 60, 90, 130, 200):
        rows = graph.drawing("sigmoid", (width, 30)).rows
        assert {sum(len(part.text) for part in row) for row in rows} == {width}


def test_edges_without_a_common_box_never_share_a_lane() -> None:
    first, second, third = (Wire(1, 7),), (Wire(4, 10),), (Wire(12, 14),)
    assert in_lanes((first, second, third)) == (Net(first, 0), Net(second, 1), Net(third, 0))
    ends_there, begins_there = (Wire(0, 4),), (Wire(4, 8),)
    assert in_lanes((ends_there, begins_there)) == (Net(begins_there, 0), Net(ends_there, 1))


def test_lines_of_two_nets_cross_without_a_joint() -> None:
    columns = {
        -2: [Neighbour(name, "") for name in "abc"],
        -1: [Neighbour("d", ""), Neighbour("e", "")],
        0: [Neighbour("f", "")],
    }
    edges = {("a", "e"), ("b", "d"), ("c", "e"), ("d", "f"), ("e", "f")}
    drawing = draw(columns, edges, (60, 9))
    assert ["".join(part.text for part in row).rstrip() for row in drawing.rows] == [
        "╭ a ╮",
        "│   ├─╮    ╭ d ╮",
        "╰───╯ │╭──▶│   ├─╮   ┏ f ┓",
        "╭ b ╮ ││   ╰───╯ │   ┃   ┃",
        "│   ├─│╯   ╭ e ╮ ├──▶┃   ┃",
        "╰───╯ ├───▶│   ├─╯   ┃   ┃",
        "╭ c ╮ │    ╰───╯     ┗━━━┛",
        "│   ├─╯",
        "╰───╯",
    ]
    names = [box.item.name for box in drawing.boxes]
    assert [names[drawing.beside(names.index(name), 1) or 0] for name in "abcde"] == ["e", "d", "e", "f", "f"]
    assert drawing.beside(names.index("f"), 1) is None


def layered() -> Report:
    """The sample with the two users of one node in two layers."""
    report = sample_report()
    target = report.targets[0]
    layers = {"sigmoid": "blocks.0", "mul_1": "blocks.1"}
    stages = []
    for stage in target.stages:
        full = target.stage(stage.name) or stage
        nodes = [
            replace(node, layer=layers[node.name], target="aten.mul.Tensor", spans=(), tensor=None)
            if node.name in layers
            else node
            for node in full.nodes
        ]
        stages.append(replace(full, nodes=tuple(nodes), same_as=None))
    return replace(report, targets=(replace(target, stages=tuple(stages)), *report.targets[1:]))


def test_the_same_node_of_several_layers_is_one_box_until_unfolded() -> None:
    graph = neighbourhood(layered())
    folded, unfolded = hops(graph, "gelu", 60), hops(graph, "gelu", 60, unfolded=True)
    assert [name for name in folded[1] if "×" in name] == ["×2 sigmoid"]
    assert {"sigmoid", "mul_1"} <= set(unfolded[1])
    assert len(folded[1]) == len(unfolded[1]) - 1


@pytest.mark.rotates
def test_the_drawing_follows_the_arrow_keys_past_its_edge() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        await select(app, pilot, "nodes", "addmm")
        await pilot.press("enter")
        drawing = app.workbench.query_one(NodeMap)
        assert drawing.has_focus
        visited = ["addmm"]
        for _ in range(12):
            await pilot.press("right")
            if table(app, "nodes").key != visited[-1]:
                visited.append(table(app, "nodes").key)
        assert visited[-1] == "output"
        assert len(visited) > 2
        assert drawing.has_focus
        await pilot.press("backspace")
        assert table(app, "nodes").key == visited[-2]

    drive(scenario)


@pytest.mark.rotates
def test_an_arrow_moves_along_an_edge_and_highlights_its_source() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        await select(app, pilot, "nodes", "sigmoid")
        await pilot.press("enter", "left")
        assert lit(app) == ["functional.gelu(self.up(x))"]

    drive(scenario)
