"""The forward and the backward program of a joint program, once it is decided what is saved between them.

Invariant: both share the joint program's nodes; tensors are saved before sizes.
"""

from collections.abc import Iterable

from aotlens.ir.program import (
    Node,
    Program,
    ProgramInput,
    ProgramOutput,
    has_effect,
    reachable,
    without_backward_effects,
)
from aotlens.ir.slots import BACKWARD_INPUTS, SavedForBackward, SavedInput
from aotlens.joint.data_dependent_sizes import with_sizes
from aotlens.joint.records import Joint
from aotlens.partition.rules import is_number


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
