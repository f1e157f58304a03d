"""Forward and backward of a joint program: which nodes can run on which side, and the two programs.

Invariants: a node that depends on a tangent belongs to the backward; a node that a forward output or an
in-graph mutation needs belongs to the forward; every other node can run on either side.  Both programs share
the joint program's nodes; tensors are saved before sizes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from aotlens.ir.program import (
    Node,
    Program,
    ProgramInput,
    ProgramOutput,
    ancestors,
    computed_by,
    has_effect,
    reachable,
    without_backward_effects,
)
from aotlens.ir.slots import BACKWARD_INPUTS, SavedForBackward, SavedInput
from aotlens.joint.data_dependent_sizes import with_sizes
from aotlens.joint.records import Joint
from aotlens.partition.rules import has_several_outputs, is_number
from aotlens.partition.storages import storage_root


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of a joint program, as sets of node identities."""

    forward: frozenset[int]
    backward: frozenset[int]
    """The backward's own inputs (tangents, RNG state) and all nodes that depend on them."""
    inputs: frozenset[int]
    """Flat inputs."""
    changed_inputs: frozenset[int]
    """Flat inputs whose caller's tensor has been mutated by the time the backward runs."""

    checkpoint_outputs: frozenset[int]
    """Values of an activation checkpoint that code outside of it reads, and may save."""
    passed_between_checkpoints: frozenset[int] = frozenset()
    """Values that an activation checkpoint computes for a later one. They are saved, as eager saves the
    inputs of a checkpoint: if they were recomputed, the values of both checkpoints would be in memory at
    once."""

    def forward_nodes(self, joint: Joint) -> list[Node]:
        """Return the inputs and nodes of the joint program that do not depend on a tangent, each once."""
        nodes = (*(item.node for item in joint.program.inputs), *joint.program.nodes)
        return [node for node in dict.fromkeys(nodes) if id(node) not in self.backward]

    def is_forward_value(self, node: Node) -> bool:
        """Return True if the user's forward computes the value, whether or not the forward reads it."""
        return id(node) in self.forward or not (node.origin.backward or id(node) in self.backward)

    def reads_mutated_input(self, node: Node) -> bool:
        """Return True if the value cannot be recomputed, because an input that it reads, or reads through a
        view, is mutated before the backward."""
        if not self.changed_inputs or has_several_outputs(node):  # its items are saved one by one
            return False
        return any(id(storage_root(source)) in self.changed_inputs for source in computed_by(node).inputs())


def split_sides(joint: Joint) -> Sides:
    """Return the sides of a joint program."""
    program = joint.program
    backward = {id(item.node) for item in program.inputs_of(*BACKWARD_INPUTS)}
    inputs = {id(item.node) for item in program.inputs} - backward
    for node in program.nodes:
        has_backward_effect = has_effect(node) and node.origin.backward
        if has_backward_effect or any(id(source) in backward for source in node.inputs()):
            backward.add(id(node))
    outputs = [out.value for out in joint.forward_outputs]
    leaving = _checkpoint_outputs(joint)
    handed_on = _passed_between_checkpoints(joint) if leaving else set()
    forward = ancestors(outputs, without_backward_effects(program.nodes), effects=True)
    return Sides(
        forward=frozenset(forward),
        backward=frozenset(backward),
        inputs=frozenset(inputs),
        changed_inputs=joint.changed_inputs,
        checkpoint_outputs=frozenset(leaving | handed_on),
        passed_between_checkpoints=frozenset(handed_on),
    )


def _checkpoint_outputs(joint: Joint) -> set[int]:
    """Return the values of checkpoints that forward operators outside read, or that are outputs."""
    marked = {
        id(node): node.origin.checkpoint.region
        for node in joint.program.nodes
        if node.origin.checkpoint is not None
    }
    if not marked:
        return set()
    leaving = {id(out.value) for out in joint.forward_outputs}
    for node in joint.program.nodes:
        if node.origin.backward:
            continue
        region = marked.get(id(node))
        leaving.update(id(source) for source in node.inputs() if marked.get(id(source), region) != region)
    return leaving & marked.keys()


def _passed_between_checkpoints(joint: Joint) -> set[int]:
    """Return the values of a checkpoint, other than outputs, that reach a later one through code outside of
    both."""
    handed_on: set[int] = set()
    reaches: dict[int, set[int]] = {}
    for node in reversed(joint.program.nodes):
        if node.origin.backward:
            continue
        own = node.origin.checkpoint
        onward = {own.region} if own is not None else reaches.get(id(node), set())
        for source in node.inputs():
            reaches.setdefault(id(source), set()).update(onward)
    for node in joint.program.nodes:
        own = node.origin.checkpoint
        if own is not None and reaches.get(id(node), set()) - {own.region}:
            handed_on.add(id(storage_root(node)))
    return handed_on - {
        id(storage_root(out.value)) for out in joint.forward_outputs if type(out.value) is Node
    }


def sizes_last(saved: Iterable[Node]) -> tuple[Node, ...]:
    """Order tensors before sizes, as the runtime saves them."""
    return tuple(sorted(saved, key=is_number))


def forward_program(joint: Joint, saved: tuple[Node, ...], nodes: tuple[Node, ...] | None = None) -> Program:
    """Return the forward program, whose outputs include the saved values that it computes and does not
    return.

    `nodes` are those to choose from, if they are not only the joint program's and its missing sizes.
    """
    output_ids = {id(out.value) for out in joint.forward_outputs}
    outputs = (
        *joint.forward_outputs,
        *(
            ProgramOutput(node, SavedForBackward(node.name))
            for node in sizes_last(saved)
            if node.op is not None and id(node) not in output_ids
        ),
    )
    candidates = without_backward_effects(nodes or with_sizes(joint.program.nodes, saved))
    needed = reachable([out.value for out in outputs], candidates)
    return Program("forward", joint.program.inputs_except(*BACKWARD_INPUTS), needed, outputs)


def backward_program(joint: Joint, saved: tuple[Node, ...], nodes: tuple[Node, ...]) -> Program:
    """Return the backward program, with saved values and then tangents as inputs."""
    saved_inputs = (ProgramInput(node, SavedInput(node.name)) for node in sizes_last(saved))
    inputs = (*saved_inputs, *joint.program.inputs_of(*BACKWARD_INPUTS))
    return Program("backward", inputs, without_forward_effects(nodes), joint.gradients)


def without_forward_effects(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes without those that the forward runs only for their effect."""
    return tuple(node for node in nodes if not has_effect(node) or node.origin.backward)
