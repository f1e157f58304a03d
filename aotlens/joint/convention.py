"""Programs in the calling convention of `functorch.compile`, and the mapping back to ours.

In that convention every flat input is a graph input (plain values too) and every output is a graph output
(aliases and plain values too).  The forward also returns the inputs that it saves; the backward takes saved
sizes first and returns one gradient, or None, per input.  A graph with functional RNG takes seed and offset
last and returns the new offset: the forward before the saved values, the backward last.  Invariant: the nodes
are the same; only the lists of inputs and outputs differ, so the module text never sees them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from aotlens.ir.graph_module import to_graph_module
from aotlens.ir.names import torch_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import (
    Node,
    Program,
    ProgramInput,
    ProgramOutput,
    computed_by,
    is_random_op,
    reachable,
    without_backward_effects,
)
from aotlens.ir.slots import (
    BACKWARD_INPUTS,
    BackwardRngState,
    CurrentInput,
    FlatInput,
    Gradient,
    GraphOutput,
    MutatedInput,
    RngState,
    SavedForBackward,
    SavedInput,
    SyntheticBase,
    Tangent,
    UserOutput,
)
from aotlens.joint.records import JointProgram
from aotlens.torch_api.aot import set_joint_signature, tensor_metadata

CHANGED = "aotlens_changed"
"""Key in a placeholder's `meta`: whether its tensor has another value when the backward runs."""


@dataclass(frozen=True, slots=True)
class Convention:
    """One program as torch's compilers see it, and how our calls map to its calls."""

    program: Program
    names: tuple[str, ...]
    """Names of the inputs: `primals_1`, `tangents_1`, `arg0_1`."""
    input_positions: tuple[int, ...]
    """For each input, its position among our program's inputs; -1 for a plain value."""
    output_positions: tuple[int, ...]
    """For each of our program's outputs, its position among these outputs."""

    @property
    def examples(self) -> list[Any]:
        return [graph_input.node.val for graph_input in self.program.inputs]

    def module(self) -> fx.GraphModule:
        """Return the graph module for a compiler, with `tensor_meta` on every node that is a tensor."""
        graph_module = to_graph_module(self.program, training=True, names=self.names)
        for graph_input, node in zip(
            self.program.inputs, graph_module.graph.find_nodes(op="placeholder"), strict=True
        ):
            node.meta["desc"] = graph_input.slot
        graph_module.graph.output_node().meta["desc"] = [out.slot for out in self.program.outputs]
        return with_node_metadata(graph_module)

    def adapt(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Wrap `run`, which follows torch's convention, as a callable in ours."""
        same_inputs = self.input_positions == tuple(range(len(self.input_positions)))
        same_outputs = self.output_positions == tuple(range(len(self.program.outputs)))
        if same_inputs and same_outputs:
            return run
        plain = [graph_input.node.val for graph_input in self.program.inputs]
        input_positions, output_positions = self.input_positions, self.output_positions

        def call(args: list[Any]) -> tuple[Any, ...]:
            inputs = [
                plain[i] if position < 0 else args[position] for i, position in enumerate(input_positions)
            ]
            args.clear()
            graph_outputs = run(inputs)
            return tuple([graph_outputs[position] for position in output_positions])

        return call


def with_node_metadata(module: fx.GraphModule) -> fx.GraphModule:
    """Add to every node the metadata that `functorch.compile`'s graphs carry in addition to `val`."""
    memo: dict[Any, Any] = {}
    for node in module.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, (torch.Tensor, list, tuple)):
            node.meta["tensor_meta"] = tensor_metadata(val, memo)
    return module


def primals(joint: JointProgram) -> tuple[ProgramInput, ...]:
    """Return synthetic bases, then all other flat inputs but duplicates.

    Plain values among them are inputs that no node reads.
    """
    others = (*BACKWARD_INPUTS, SyntheticBase, RngState)
    ordered = list(joint.program.inputs_of(SyntheticBase))
    plain_inputs = [
        ProgramInput(Node(f"plain_{index}", None, (), {}, flat.argument, Origin(NO_ORIGIN, "")), flat.slot)
        for index, flat in enumerate(joint.captured.inputs)
        if flat.node is None and flat.duplicate_of is None and not flat.is_tensor
    ]
    for item in joint.program.inputs_except(*others):
        if isinstance(item.slot, FlatInput):
            while plain_inputs and getattr(plain_inputs[0].slot, "index", 0) < item.slot.index:
                ordered.append(plain_inputs.pop(0))
        ordered.append(item)
    return (*ordered, *plain_inputs)


def forward_inputs(joint: JointProgram) -> tuple[ProgramInput, ...]:
    """Return the primals, then seed and offset if the forward uses functional RNG."""
    return (*primals(joint), *joint.program.inputs_of(RngState))


def backward_tangents(joint: JointProgram) -> tuple[ProgramInput, ...]:
    """Return the tangents, then seed and offset if the backward uses functional RNG."""
    return (*_tangents(joint), *joint.program.inputs_of(BackwardRngState))


def _tangents(joint: JointProgram) -> tuple[ProgramInput, ...]:
    """Return the tangents, then the inputs that the backward reads at its start (also named `tangents`)."""
    return (*joint.program.inputs_of(Tangent), *joint.program.inputs_of(CurrentInput))


def forward_graph_outputs(joint: JointProgram) -> tuple[ProgramOutput, ...]:
    """Return updated inputs, all outputs in the user's order, then hidden bases and sizes."""
    outputs = joint.forward_outputs
    before = [out for out in outputs if isinstance(out.slot, MutatedInput)]
    user_outputs = [out for out in (*outputs, *joint.aliases) if isinstance(out.slot, UserOutput)]
    user_outputs.sort(key=lambda out: out.slot.index)  # type: ignore[union-attr]
    after = [out for out in outputs if not isinstance(out.slot, (MutatedInput, UserOutput))]
    return (*before, *user_outputs, *after)


def gradient_outputs(joint: JointProgram) -> tuple[ProgramOutput, ...]:
    """Return one gradient or None per primal (several for a subclass), then those of output leaves."""
    defined = [out for out in joint.gradients if isinstance(out.slot, Gradient)]
    by_index: dict[int, list[ProgramOutput]] = {}
    for out in defined:
        by_index.setdefault(out.slot.index, []).append(out)  # type: ignore[union-attr]
    own_slots = {_slot_key(out.slot) for out in defined}
    outputs: list[ProgramOutput] = []
    for graph_input in primals(joint):
        index, inner = _slot_key(graph_input.slot)
        if index in by_index:
            outputs += by_index.pop(index)
        elif (index, inner) not in own_slots:
            outputs.append(ProgramOutput(None, Gradient(graph_input.slot.name, index, inner)))
    remaining = (out for each in by_index.values() for out in each)  # the graph takes their synthetic base
    return (*outputs, *remaining, *(out for out in joint.gradients if not isinstance(out.slot, Gradient)))


def _slot_key(slot: Any) -> tuple[int, tuple[str, ...]]:
    """Return the index of the flat input and the path of the inner tensor."""
    return getattr(slot, "index", -1), getattr(slot, "inner", ())


def joint_convention(joint: JointProgram) -> Convention:
    """Return the joint program: `(primals, tangents)`, then RNG states, to `(outputs, gradients)`."""
    states = (*joint.program.inputs_of(RngState), *joint.program.inputs_of(BackwardRngState))
    inputs = (*primals(joint), *_tangents(joint), *states)
    outputs = (*forward_graph_outputs(joint), *(gradient_outputs(joint) if joint.training else ()))
    nodes = reachable([out.value for out in outputs], joint.program.nodes)
    program = Program("joint", inputs, nodes, outputs, returns_list=joint.training)
    return _convention(program, _names(joint, inputs), joint.program)


def joint_module(joint: JointProgram) -> fx.GraphModule:
    """Return the joint graph module, called as `module(primals, tangents)`; in inference with flat inputs."""
    convention = joint_convention(joint)
    module = convention.module()
    tag_sides(module, convention, joint)
    placeholders = module.graph.find_nodes(op="placeholder")
    for graph_input, node in zip(convention.program.inputs, placeholders, strict=True):
        node.meta[CHANGED] = id(graph_input.node) in joint.changed_inputs
    if joint.training:
        states = [name for name in convention.names if not name.startswith(("primals", "tangents"))]
        output_counts = (len(forward_graph_outputs(joint)), len(gradient_outputs(joint)))
        set_joint_signature(module, len(primals(joint)), len(_tangents(joint)), output_counts, states)
    return module


def tag_sides(module: fx.GraphModule, convention: Convention, joint: JointProgram) -> None:
    """Tag each node as forward or backward, and with the mark of its activation checkpoint.

    A random op for torch carries no checkpoint mark: its outputs are saved, so that no RNG state needs to be
    restored.
    """
    nodes = {node.name: node for node in convention.program.nodes}
    for fx_node in module.graph.nodes:
        node = nodes.get(fx_node.meta.get("aotlens_node", ""))
        if node is not None and joint.training:
            fx_node.meta["partitioner_tag"] = "is_backward" if node.origin.backward else "is_forward"
            checkpoint = node.origin.checkpoint
            op = computed_by(node).op
            random = is_random_op(op) or torch.Tag.nondeterministic_seeded in getattr(op, "tags", ())
            if checkpoint is not None and not node.origin.backward and not random:
                fx_node.meta["recompute"] = CheckpointPolicy[checkpoint.mark.name]
                fx_node.meta["ac_graph_id"] = checkpoint.region


def forward_convention(joint: JointProgram, forward: Program, saved: tuple[Node, ...]) -> Convention:
    """Return the convention of the forward (or only) program; `saved` is in the backward's order."""
    inputs = forward_inputs(joint)
    outputs: tuple[ProgramOutput, ...] = (
        *forward_graph_outputs(joint),
        *(ProgramOutput(node, SavedForBackward(node.name)) for node in saved),
    )
    # Only the joint program computes the aliases among the outputs, only the forward what partitioning adds.
    all_nodes = dict.fromkeys((*joint.program.nodes, *forward.nodes))
    nodes = reachable([out.value for out in outputs], without_backward_effects(all_nodes))
    program = Program(forward.name, inputs, nodes, outputs)
    return _convention(program, _names(joint, inputs), forward)


def backward_convention(joint: JointProgram, backward: Program) -> Convention:
    """Return the backward's convention: saved sizes, saved tensors, tangents; one gradient per primal."""
    all_inputs = forward_inputs(joint)
    names = {
        id(graph_input.node): name
        for graph_input, name in zip(all_inputs, _names(joint, all_inputs), strict=True)
    }
    saved = backward.inputs_of(SavedInput)
    tangents = backward_tangents(joint)
    sizes = [graph_input for graph_input in saved if not isinstance(graph_input.node.val, torch.Tensor)]
    inputs = (*sizes, *(graph_input for graph_input in saved if graph_input not in sizes), *tangents)
    values = {out.slot: out.value for out in backward.outputs}
    outputs = tuple(replace(out, value=values.get(out.slot, out.value)) for out in gradient_outputs(joint))
    input_names = [
        names.get(id(graph_input.node), torch_name(graph_input.node)) for graph_input in inputs[: len(saved)]
    ]
    input_names += _names(joint, tangents)
    return _convention(Program("backward", inputs, backward.nodes, outputs), input_names, backward)


def _convention(program: Program, names: list[str], ours: Program) -> Convention:
    """Return the convention of a program whose inputs have these names, for calls of our own program."""
    input_positions = {id(graph_input.node): index for index, graph_input in enumerate(ours.inputs)}
    output_positions: dict[GraphOutput, int] = {}
    for index, out in enumerate(program.outputs):
        output_positions.setdefault(out.slot, index)
    return Convention(
        program,
        tuple(names),
        tuple(input_positions.get(id(graph_input.node), -1) for graph_input in program.inputs),
        tuple(output_positions[out.slot] for out in ours.outputs),
    )


def _names(joint: JointProgram, inputs: tuple[ProgramInput, ...]) -> list[str]:
    """Return the expected names: `primals_1`, `tangents_1`, `fwd_seed_1`; in inference `arg0_1`."""
    if not joint.training:
        return [f"arg{index}_1" for index in range(len(inputs))]
    names, primal_count, tangent_count = [], 0, 0
    for graph_input in inputs:
        match graph_input.slot:
            case RngState(name=name) | BackwardRngState(name=name):
                names.append(f"{name}_1")
            case Tangent() | CurrentInput():
                tangent_count += 1
                names.append(f"tangents_{tangent_count}")
            case _:
                primal_count += 1
                names.append(f"primals_{primal_count}")
    return names
