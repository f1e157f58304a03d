"""Which nodes the forward needs, which only the backward can compute, and which either could.

Invariant: a node that depends on a tangent is backward; a node that a forward output or an in-graph write
needs is forward; every other node can be computed on either side.
"""

from dataclasses import dataclass

from aotlens.ir.program import Node, ancestors
from aotlens.ir.slots import Tangent
from aotlens.joint.records import JointProgram


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of one joint program, as sets of node identities."""

    forward: frozenset[int]
    backward: frozenset[int]
    """Depends on a tangent; the tangents themselves included."""
    inputs: frozenset[int]
    """Flat inputs."""
    changed_inputs: frozenset[int]
    """Flat inputs whose caller's tensor has another value by the time the backward runs."""

    def made_by_forward(self, node: Node) -> bool:
        """Whether the user's forward computed the value, used there or not."""
        return id(node) in self.forward or not (node.origin.backward or id(node) in self.backward)


def split_sides(joint: JointProgram) -> Sides:
    program = joint.program
    backward = {id(given.node) for given in program.inputs if isinstance(given.slot, Tangent)}
    inputs = {id(given.node) for given in program.inputs if id(given.node) not in backward}
    for node in program.nodes:
        if any(id(source) in backward for source in node.inputs()):
            backward.add(id(node))
    forward = ancestors([out.value for out in joint.forward_outputs], program.nodes, effects=True)
    mutated = {id(joint.captured.inputs[info.index].node) for info in joint.meta.inputs if info.mutates_data}
    return Sides(frozenset(forward), frozenset(backward), frozenset(inputs), frozenset(mutated))
