"""The programs of each stage as rows of the report."""

from collections.abc import Mapping
from typing import Any

import torch

from aotlens.build.programs import StageProgram, stage_programs
from aotlens.ir.layers import Layers
from aotlens.ir.program import Node, getitem, nodes_in
from aotlens.ir.tensor_text import describe_tensor
from aotlens.model.report import Stage, StageNode, Tensor
from aotlens.model.target_records import OF_GRADIENT
from aotlens.partition.records import Partitioned
from aotlens.partition.saved_values import side_notes
from aotlens.runtime.graph_text import NO_NOTES, write_program

BEFORE_JOINT = ("captured", "desugared", "functional", "decomposed")


def build_stages(parts: Partitioned) -> tuple[Stage, ...]:
    """Captured, desugared, functional and decomposed, then joint, forward and backward; or inference."""
    joint = Layers(parts.joint.program)  # also knows the nodes of the programs made from it
    return tuple(
        stage_row(stage, side_notes(parts, stage.name), None if stage.name in BEFORE_JOINT else joint)
        for stage in stage_programs(parts)
    )


def stage_row(
    stage: StageProgram, notes: Mapping[str, str] = NO_NOTES, layers: Layers | None = None
) -> Stage:
    """Return one stage; one that changes nothing has neither nodes nor text.

    A recomputed node of the backward says so, and its `from_` is the joint node that the forward also has.
    """
    if stage.same_as is not None:
        return Stage(stage.name, stage.parent, (), "", stage.same_as)
    program = stage.program
    layers = layers or Layers(program)
    rows = [
        StageNode(
            program_input.node.name,
            "placeholder",
            program_input.slot.name,
            (),
            _tensor(program_input.node.val),
            (),
            stage.ancestors(program_input.node),
            f"{type(program_input.slot).__name__} `{program_input.slot.name}`",
            layers.layer_of_input(program_input.node),
        )
        for program_input in program.inputs
    ]
    rows += [_row(node, stage, notes.get(node.name, ""), layers.layer_of(node)) for node in program.nodes]
    results = tuple(node.name for node in nodes_in(out.value for out in program.outputs))
    whose = "the function's outputs" if stage.parent is None else "the graph's outputs"
    rows.append(StageNode("output", "output", "output", results, None, (), (), whose))
    return Stage(stage.name, stage.parent, tuple(rows), write_program(program, notes).source)


def _row(node: Node, stage: StageProgram, note: str, layer: str | None) -> StageNode:
    from_ = stage.ancestors(node)
    reason = note or node.origin.reason
    if not reason and node.origin.differentiates is not None:
        reason = f"{OF_GRADIENT} `{node.origin.differentiates.op}`"
    if not reason and not node.origin.location.spans:
        what = f"runs while `{node.target}` is captured" if stage.parent is None else None
        reason = what or f"added by the stage {node.origin.stage}"
    if not reason and not from_ and stage.parent is not None:
        reason = "a view that autograd regenerates after a write"
    return StageNode(
        name=node.name,
        op="get_attr" if node.constant is not None else "call_function",
        target=_target(node),
        inputs=tuple(dict.fromkeys(source.name for source in node.inputs())),
        tensor=_tensor(node.val),
        spans=node.origin.location.spans,
        from_=from_,
        reason=reason,
        layer=layer,
    )


def _target(node: Node) -> str:
    if node.constant is not None:
        return "constant"
    return f"{node.target}[{node.args[1]}]" if node.op is getitem else node.target


def _tensor(val: Any) -> Tensor | None:
    return describe_tensor(val) if isinstance(val, torch.Tensor) else None
