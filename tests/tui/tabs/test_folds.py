"""Identical layers as one row, unfolded on a key."""

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from aotlens.model import (
    Partition,
    RecomputedValue,
    Report,
    SavedValue,
    Span,
    Stage,
    StageNode,
    Target,
    Tensor,
)
from aotlens.view.tabs.tables.rows import Column, Jump, LazyRows, Link, Listing, grouped
from tests.report.sample import sample_report, span, training_target
from tests.tui.driving import drive, lines, rows, table
from tui.app import AotlensApp
from tui.panes.stages import StagesPane

SHAPE = Tensor("f32", (2,), (1,), "cpu", False, 8)
NAMES = ("a", "h.0.w", "h.1.w", "h.0.b", "h.1.b", "h.2.b")
FOLDED = ["a", "×2 h.0–1.w", "×3 h.0–2.b"]


def layered() -> Listing:
    """Rows of which those that differ only in their layer fold."""
    cells = LazyRows(NAMES, str, lambda text: (text,), str, lambda text: Link())
    groups = grouped(NAMES, str, lambda name: None)
    return Listing((Column("name"),), cells, "", groups, lambda group: (group.label,))


@pytest.mark.rotates
def test_layers_are_one_row_until_the_key_unfolds_them() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        shown = table(app, "saved-table")
        shown.show(layered())
        assert rows(app, "saved-table") == FOLDED
        shown.place_cursor(2)
        await pilot.press("u")
        assert (rows(app, "saved-table"), shown.key) == (list(NAMES), "h.0.b")
        await pilot.press("u")
        assert (rows(app, "saved-table"), shown.key) == (FOLDED, "h.0.b")

    drive(scenario)


def test_values_of_one_expression_are_told_apart_by_their_nodes() -> None:
    """Folded, unfolded, and in the Overview; a fold of two values in each layer has their number instead."""
    up = span("self.up(x)")
    saved = tuple(
        SavedValue(node, SHAPE, 8, "new", reason, up, layer=layer)
        for node, reason, layer in (
            ("clone", "cheap", "h.0"),
            ("mm", "costly", "h.0"),
            ("clone_1", "cheap", "h.1"),
            ("mm_1", "costly", "h.1"),
        )
    )
    recomputed = tuple(
        RecomputedValue(node, 8, 4, "cheap", up, layer=layer)
        for node, layer in (("relu", "h.0"), ("div", "h.0"), ("relu_1", "h.1"), ("div_1", "h.1"))
    )
    target = replace(training_target(), partition=Partition("min-cut", saved, recomputed, 32))

    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        names = [row.split(" | ")[2] for row in rows(app, "saved-table")]
        assert names == ["×2 h.0–1: self.up(x) (clone)", "×2 h.0–1: self.up(x) (mm)"]
        assert [row.split(" | ")[1] for row in rows(app, "recomputed")] == ["×4 h.0–1: self.up(x)"]
        await pilot.press("u")
        names = [row.split(" | ")[2] for row in rows(app, "saved-table")]
        assert names == [f"self.up(x) ({node})" for node in ("clone", "mm", "clone_1", "mm_1")]
        largest = [line for line in lines(app, "overview-lines") if "16 B" in line]
        assert ["(clone)" in largest[0], "(mm)" in largest[1]] == [True, True]

    drive(scenario, AotlensApp("model.py", report=replace(sample_report(), targets=(target,))))


def test_what_a_fold_hides_is_found_and_shown() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        shown = table(app, "outputs")  # of a pane that is not open
        shown.show(layered())
        shown.filter("h.1")
        assert rows(app, "outputs") == ["h.1.w", "h.1.b"]
        shown.filter("")
        shown.mark_records((4,))
        assert (rows(app, "outputs"), shown.linked) == (FOLDED, frozenset((2,)))
        assert shown.select("h.2.b")
        assert (len(rows(app, "outputs")), shown.key) == (6, "h.2.b")

    drive(scenario)


def layered_target() -> Target:
    """Three layers of a product and a `relu`, the last without `relu`, and back through them."""
    forward = [given("x", None)]
    backward = [given("tangent", None)]
    for at in range(3):
        layer = f"h.{at}"
        forward += [given(f"h.{at}.w", layer), called(f"mm_{at}", "aten.mm.default", layer)]
        forward += [called(f"relu_{at}", "aten.relu.default", layer)] if at < 2 else []
    backward += [called(f"grad_{at}", "aten.mm.default", f"h.{at}", (f"mm_{at}",)) for at in (2, 1, 0)]
    stages = (
        Stage("captured", None, tuple(forward), ""),
        Stage("joint", "captured", (*same(forward), *backward), ""),
        Stage("forward", "joint", tuple(same(forward)), ""),
        Stage("backward", "joint", tuple(same(backward)), ""),
    )
    place, nothing = Span("model.py", 1, 0, 9, 0), Partition("min-cut", (), (), 0)
    return Target("f", "f", "direct", "training", place, stages=stages, partition=nothing)


def given(name: str, layer: str | None) -> StageNode:
    return StageNode(name.replace(".", "_"), "placeholder", name, (), SHAPE, (), layer=layer)


def called(name: str, target: str, layer: str | None, from_: tuple[str, ...] = ()) -> StageNode:
    line = 7 if "mm" in target else 8
    spans = (Span("model.py", line, 0, line, 9),)
    return StageNode(name, "call_function", target, (), SHAPE, spans, from_, layer=layer)


def same(nodes: list[StageNode]) -> list[StageNode]:
    return [replace(node, from_=(node.name,)) for node in nodes]


def layered_app() -> AotlensApp:
    return AotlensApp("model.py", report=Report("", "", "", targets=(layered_target(),)))


def names(app: AotlensApp, id: str) -> list[str]:
    """Layer and node of each row."""
    return [" ".join(row.split(" | ")[:2]) for row in rows(app, id)]


@pytest.mark.rotates
def test_nodes_of_identical_layers_are_one_row() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        folded = [" x", "×3 h.0–2 h_0_w", "×3 h.0–2 mm_0", "×2 h.0–1 relu_0"]
        assert (names(app, "nodes"), table(app, "nodes").key) == (folded, "mm_0")
        await pilot.press("right_square_bracket")
        assert (names(app, "nodes"), table(app, "nodes").key) == ([" tangent", "×3 h.0–2 grad_2"], "grad_2")
        await pilot.press("u")
        assert names(app, "nodes") == [" tangent", "h.2 grad_2", "h.1 grad_1", "h.0 grad_0"]

    drive(scenario, layered_app())


@pytest.mark.rotates
def test_a_node_that_a_fold_hides_is_walked_to() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        app.workbench.jump(Jump("graphs", "forward/mm_1"))
        assert (len(rows(app, "nodes")), table(app, "nodes").key) == (9, "mm_1")
        await pilot.press("u")
        assert (len(rows(app, "nodes")), table(app, "nodes").key) == (4, "mm_0")
        await pilot.press("slash", *"h.1", "enter")
        assert [name.split()[1] for name in names(app, "nodes")] == ["h_1_w", "mm_1", "relu_1"]

    drive(scenario, layered_app())


@pytest.mark.rotates
def test_a_node_is_followed_through_stages_that_fold_it() -> None:
    async def scenario(app: AotlensApp, pilot: Pilot[int]) -> None:
        app.workbench.jump(Jump("stages", "captured/mm_1"))
        await pilot.pause()
        seen = []
        for _ in range(4):
            shown = table(app, "diff")
            seen.append((app.workbench.query_one(StagesPane).stage, shown.unfolded, shown.shows("mm_1")))
            assert "captured   line 7   mm_1 = mm()  f32[2]" in "\n".join(lines(app, "follow"))
            await pilot.press("right_square_bracket")
        assert seen == [(name, False, True) for name in ("captured", "joint", "partition", "forward")]

    drive(scenario, layered_app())
