"""Inputs that eager's autograd does not keep, so that their owner may write to them before the backward runs.

Invariant: a call that works in eager works compiled: no policy computes a value again from such an input.
"""

from aotlens.ir.program import Node
from aotlens.ir.slots import BACKWARD_INPUTS
from aotlens.joint.records import Joint
from aotlens.partition.rules import is_number
from aotlens.partition.storages import storage_root


def changeable_inputs(joint: Joint, backward: set[int]) -> frozenset[int]:
    """Identities of the inputs of which no value, nor a view, is read by what autograd runs.

    A checkpointed function keeps its inputs in eager too, so they count as read.
    """
    read: set[int] = {id(storage_root(out.value)) for out in joint.gradients if isinstance(out.value, Node)}
    for node in joint.program.nodes:
        ran_by_autograd = node.origin.backward or id(node) in backward or node.origin.checkpoint is not None
        if ran_by_autograd and not is_number(node):
            read.update(id(storage_root(source)) for source in node.inputs())
    return frozenset(
        id(given.node)
        for given in joint.program.inputs
        if id(given.node) not in read
        and not isinstance(given.slot, BACKWARD_INPUTS)
        and not is_number(given.node)
    )
