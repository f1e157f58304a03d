"""What the backward computes again is marked, in the module text and in the report, with its forward twin."""

import torch
from torch import Tensor

from aotlens.compiled import Compiled
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct

NOTE = "recomputed: counterpart of forward sin, 12 FLOP, frees 48 B"


def squashed(x: Tensor) -> Tensor:
    return x.sin().cos().sin()


def compiled() -> Compiled:
    x = torch.ones(3, 4, requires_grad=True)
    return compile_direct(squashed, (x,), {}, CompileOptions(backend="eager"))


def test_the_module_text_marks_what_is_computed_again() -> None:
    forward, _, backward = compiled().source.partition("def backward_graph")
    assert f"sin = aten_sin(x)  # f32[3, 4]; {NOTE}" in backward
    assert "recomputed:" not in forward


def test_the_report_links_a_recomputed_node_to_its_twin() -> None:
    target = compiled().target()
    forward, backward = target.stage("forward"), target.stage("backward")
    assert forward is not None
    assert backward is not None
    row = next(node for node in backward.nodes if node.name == "sin")
    assert (row.reason, row.from_) == (NOTE, ("sin",))
    assert "sin" in {node.name for node in forward.nodes}
    assert NOTE in backward.text
    assert "recomputed:" not in forward.text
