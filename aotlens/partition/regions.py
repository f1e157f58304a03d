"""Partition a marked region (`invoke_subgraph`) once for all of its calls, under the policy of the whole
program.

Invariant: a saved value shares its storage neither with an output of the region nor with another saved value,
so every call owns the values that it saves.
"""

import torch

from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, reachable, without_backward_effects
from aotlens.ir.regions import RecomputedValue, Region, RegionOperand, RegionOutput, RegionSize, SavedValue
from aotlens.ir.slots import SavedForBackward, SavedInput, Tangent
from aotlens.joint.records import Joint
from aotlens.options import PartitionFunction
from aotlens.partition.records import Split
from aotlens.partition.rules import Reason
from aotlens.partition.sides import without_forward_effects
from aotlens.partition.stage import recomputed_values, split_joint
from aotlens.partition.storages import storage_root
from aotlens.policy import Base, Policy

aten = torch.ops.aten


def split_region(program: Program, policy: Policy | PartitionFunction) -> Region:
    """Partition a region once for all of its calls.

    Only the base of the policy applies: partition functions, budgets and overrides see the whole program
    only.
    """
    joint = Joint(program, may_save_views=False)
    split = split_joint(joint, Policy(_base(policy)))
    outputs, saved_values, copies = list(joint.forward_outputs), list[SavedValue](), list[Node]()
    operands = {id(program_input.node): index for index, program_input in enumerate(program.inputs)}
    output_indices = {id(out.value): index for index, out in reversed(tuple(enumerate(outputs)))}
    in_results = {id(storage_root(out.value)) for out in outputs if isinstance(out.value, Node)}
    for node in split.saved:
        source: RegionOperand | RegionOutput | RegionSize
        if node.op is None and id(node) in operands:
            source = RegionOperand(operands[id(node)])
        elif isinstance(node.val, torch.SymInt):
            source = RegionSize(node.val)
        elif id(node) in output_indices:
            source = RegionOutput(output_indices[id(node)])
        else:
            source = RegionOutput(len(outputs))
            value = node
            if id(node) in in_results:
                value = _copy(node)
                copies.append(value)
            outputs.append(ProgramOutput(value, SavedForBackward(node.name)))
        saved_values.append(SavedValue(node, source, _reason(node, split)))
    nodes = reachable([out.value for out in outputs], (*without_backward_effects(program.nodes), *copies))
    operands_of_call = program.inputs_except(Tangent)
    forward = Program(f"{program.name}_forward", operands_of_call, nodes, tuple(outputs))
    saved = (ProgramInput(node, SavedInput(node.name)) for node in split.saved)
    backward_inputs = (*saved, *program.inputs_of(Tangent))
    backward_nodes = without_forward_effects(split.backward_nodes)
    backward = Program(f"{program.name}_backward", backward_inputs, backward_nodes, joint.gradients)
    recomputed = tuple(
        RecomputedValue(item.node, item.reason.text, item.size_bytes, item.flops)
        for item in recomputed_values(split)
    )
    return Region(program.name, forward, backward, tuple(saved_values), recomputed)


def _reason(node: Node, split: Split) -> str:
    return (Reason.INPUT if node.op is None else split.choice.why_saved(node)).text


def _base(policy: Policy | PartitionFunction) -> Base:
    return "default" if isinstance(policy, Policy) and policy.base == "default" else "min-cut"


def _copy(node: Node) -> Node:
    """Copy a value for the backward, because the caller gets a view of it and may write to it."""
    origin = Origin(
        NO_ORIGIN, "", stage="partition", reason="a copy, for the backward, of the base of an output"
    )
    return Node(f"{node.name}_kept", aten.clone.default, (node,), {}, node.val, origin)
