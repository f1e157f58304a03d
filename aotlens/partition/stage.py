"""The partition stage: a joint program and a policy become forward, backward, and the values saved between
them."""

from dataclasses import replace

from torch import fx

from aotlens.ir.program import Node, ancestors, has_effect, nodes_in, writes_input
from aotlens.joint.data_dependent_sizes import sizes_to_save
from aotlens.joint.records import Joint, JointProgram
from aotlens.options import PartitionFunction
from aotlens.partition.custom_partitioner import inference_with, partition_with
from aotlens.partition.flops import node_flops
from aotlens.partition.policies import choose_saved
from aotlens.partition.problem import overruled_checkpoint
from aotlens.partition.records import Partitioned, Recomputed, Split
from aotlens.partition.rules import has_several_outputs
from aotlens.partition.saved_tensor_hooks import with_hooks
from aotlens.partition.saved_values import describe_saved
from aotlens.partition.sides import Sides, backward_program, forward_program, split_sides
from aotlens.partition.storages import is_view, node_bytes
from aotlens.policy import Policy


def partition(
    joint: JointProgram, policy: str | Policy | PartitionFunction, module: fx.GraphModule | None = None
) -> Partitioned:
    """Split the joint program; in inference the forward is all of it.

    `module` is the joint program as a graph module that the user edited, for a policy that is a function.

    Raises:
        UserError: no such policy, or one that cannot be met.
    """
    if module is not None and not joint.training:
        return inference_with(joint, module)
    if isinstance(policy, str):
        policy = Policy.parse(policy)
    if not joint.training:
        name = str(policy) if isinstance(policy, Policy) else "none"
        return Partitioned(joint, replace(joint.program, name="inference"), None, name)
    if not isinstance(policy, Policy):
        return partition_with(joint, policy, module)
    split = split_joint(joint, policy)
    saved = (*split.saved, *sizes_to_save(joint, split.saved, split.backward_nodes))
    parts = Partitioned(
        joint=joint,
        policy=str(policy),
        forward=forward_program(joint, saved),
        backward=backward_program(joint, saved, split.backward_nodes),
        saved=describe_saved(joint, saved, split.choice.why_saved),
        recomputed=recomputed_values(split),
        split=split,
    )
    return parts if joint.captured.hooks is None else with_hooks(parts, joint.captured.hooks)


def split_joint(joint: Joint, policy: Policy) -> Split:
    """Choose the values to save, and derive the backward's nodes.

    Raises:
        UserError: a policy that cannot be met.
    """
    sides = split_sides(joint)
    choice = choose_saved(joint, sides, policy)
    available = sides.inputs - sides.changed_inputs
    backward_nodes, read = _backward_nodes(joint, sides, {id(node) for node in choice.saved})
    inputs = (item.node for item in joint.program.inputs if id(item.node) in available)
    saved = tuple(node for node in (*inputs, *choice.saved) if id(node) in read)
    return Split(policy, sides, choice, saved, backward_nodes)


def _backward_nodes(joint: Joint, sides: Sides, saved: set[int]) -> tuple[tuple[Node, ...], set[int]]:
    """Return the backward's nodes, each recomputed one just before its first reader, and all values that they
    read."""
    available = saved | sides.inputs | {id(item.node) for item in joint.program.inputs}
    order: list[Node] = []
    done: set[int] = set()
    read: set[int] = {id(node) for node in nodes_in(out.value for out in joint.gradients)}

    def visit(node: Node) -> None:
        stack = [node]
        while stack:
            top = stack[-1]
            if id(top) in done or id(top) in available:
                stack.pop()
                continue
            waiting = [
                source for source in top.inputs() if id(source) not in done and id(source) not in available
            ]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            done.add(id(top))
            order.append(top)
            read.update(id(source) for source in top.inputs())

    needed = ancestors([out.value for out in joint.gradients], joint.program.nodes)
    for node in joint.program.nodes:
        if id(node) in sides.backward and (id(node) in needed or has_effect(node)) and not writes_input(node):
            visit(node)
    for node in nodes_in(out.value for out in joint.gradients):
        visit(node)
    for node in joint.program.nodes:
        if writes_input(node) and node.origin.backward:
            visit(node)
    return tuple(order), read


def recomputed_values(split: Split) -> tuple[Recomputed, ...]:
    """Return the forward values that the backward recomputes, in its order."""
    sides, values = split.sides, []
    for node in split.backward_nodes:
        if id(node) in sides.backward or id(node) not in sides.forward:
            continue
        size = 0 if is_view(node) or has_several_outputs(node) else node_bytes(node)
        reason = split.choice.why_recomputed(node)
        overruled = overruled_checkpoint(node, saved=False)
        values.append(Recomputed(node, reason, size, node_flops(node), overruled))
    return tuple(values)
