"""The boxes of a drawn graph."""

from dataclasses import replace

from aotlens.model.report import Stage, StageNode
from aotlens.view.tabs.drawn_graph.boxes import MOST_NODES, graph_boxes
from tests.report.sample import training_target
from tests.report.sample_graph import node, output_node, placeholder

GRADIENT = "part of the gradient of `aten.mm.default`"


def layered(layers: int, *, gradient: bool = False) -> tuple[StageNode, ...]:
    operators = ("aten.mm.default", "aten.gelu.default")
    return tuple(
        replace(
            node(f"{name}_{layer}", name, "x", "f32[8, 16]", ("functional.gelu(self.up(x))",)),
            layer=f"blocks.{layer}",
            reason=GRADIENT if gradient else "",
        )
        for layer in range(layers)
        for name in operators
    )


def stage(*nodes: StageNode, name: str = "forward") -> Stage:
    return Stage(name, None, (placeholder("x", "x", "f32[8, 16]"), *nodes, output_node("x")), "")


def test_identical_layers_are_one_box_that_opens_to_each() -> None:
    boxes = graph_boxes(stage(*layered(3)), training_target())
    assert [(box.label, box.positions) for box in boxes] == [("blocks.0–2 ×3", (1, 2, 3, 4, 5, 6))]
    assert [(box.label, box.facts, box.positions) for box in boxes[0].inner] == [
        ("blocks.0", "2 nodes", (1, 2)),
        ("blocks.1", "2 nodes", (3, 4)),
        ("blocks.2", "2 nodes", (5, 6)),
    ]


def test_another_layer_has_its_own_box() -> None:
    nodes = list(layered(3))
    nodes[-1] = replace(nodes[-1], target="aten.relu.default")
    labels = [box.label for box in graph_boxes(stage(*nodes), training_target())]
    assert labels == ["blocks.0–1 ×2", "blocks.2"]


def test_the_gradient_of_a_layer_is_a_box_of_its_own() -> None:
    both = (*layered(2), *(replace(each, name=f"{each.name}_b") for each in layered(2, gradient=True)))
    labels = [box.label for box in graph_boxes(stage(*both, name="backward"), training_target())]
    assert labels == ["blocks.0–1 ×2", "blocks.0–1 gradient ×2"]


def test_many_nodes_fold_by_line_and_few_do_not() -> None:
    def nodes(count: int) -> tuple[StageNode, ...]:
        texts = ("hidden.sigmoid()", "functional.gelu(self.up(x))")
        return tuple(
            node(f"n{number}", "aten.sin.default", "x", "f32[8, 16]", (texts[number % 2],))
            for number in range(count)
        )

    assert graph_boxes(stage(*nodes(MOST_NODES - 2)), training_target()) == ()
    boxes = graph_boxes(stage(*nodes(MOST_NODES)), training_target())
    assert [box.facts for box in boxes] == [f"{MOST_NODES // 2} nodes"] * 2
    assert all(box.label.startswith("line ") for box in boxes)
