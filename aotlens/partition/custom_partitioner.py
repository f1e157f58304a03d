"""Partition functions of the user's, over graph modules: `partition_fn` of `functorch.compile`.

Invariant: the two graph modules that the function gives are what the compilers get; their nodes are read
back so that wrapper and report know what is saved, and by whom each result is computed.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from aotlens.errors import UserError
from aotlens.ir.from_graph_module import import_graph, nodes_of, outputs_of
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput
from aotlens.ir.slots import (
    BACKWARD_INPUTS,
    Buffer,
    CurrentInput,
    Parameter,
    SavedForBackward,
    SavedInput,
    Tangent,
)
from aotlens.joint.convention import (
    backward_tangents,
    forward_graph_outputs,
    forward_inputs,
    gradients,
    joint_module,
    primals,
)
from aotlens.joint.records import JointProgram
from aotlens.options import PartitionFunction
from aotlens.partition.reasons import Reason
from aotlens.partition.records import Partitioned, Saved
from aotlens.partition.storages import node_bytes
from aotlens.torch_api.dynamo import TracingContext, tracing

GRAPH_SAFE_STATES = ("fwd_rng_state_", "bwd_rng_state_")
"""Placeholders that torch's partition functions add for generators of their own."""


@dataclass(frozen=True, slots=True)
class _Forward:
    """The forward graph module, read back."""

    nodes: tuple[Node, ...]
    results: list[Any]
    """The joint program's forward outputs, in torch's order."""
    saved: list[Node]
    """What it hands on: tensors, then sizes."""


def partition_with(
    joint: JointProgram, function: PartitionFunction, module: fx.GraphModule | None = None
) -> Partitioned:
    """Let a function split the joint program, or `module`, which is an edited form of it.

    Raises:
        UserError: its graphs do not fit the joint graph's inputs and outputs.
    """
    inputs = forward_inputs(joint)
    arriving = backward_tangents(joint)
    context = TracingContext.try_get() or TracingContext(joint.captured.recorder.fake_mode)
    with tracing(context):  # torch's own makes examples of the random states that it hands on
        answer = function(
            module if module is not None else joint_module(joint),
            _examples(joint),
            num_fwd_outputs=len(forward_graph_outputs(joint)),
            static_lifetime_input_indices=[
                at for at, given in enumerate(inputs) if isinstance(given.slot, (Parameter, Buffer))
            ],
        )
    name = getattr(function, "__name__", type(function).__name__)
    forward_module, backward_module = _two_modules(answer, name)
    read = _read_forward(joint, inputs, forward_module, name)
    count = len(gradients(joint, primals(joint)))
    backward_nodes, grads = _read_backward(joint, count, backward_module, read, name)
    whole = _joined(joint, read, backward_nodes, grads)
    return Partitioned(
        joint=whole,
        policy=name,
        forward=_forward_program(whole, read),
        backward=_backward_program(whole, read, arriving, backward_nodes),
        saved=_describe(read.saved, inputs),
        modules=(forward_module, backward_module),
    )


def _two_modules(answer: object, name: str) -> tuple[fx.GraphModule, fx.GraphModule]:
    found = answer if isinstance(answer, (tuple, list)) else (answer,)
    if len(found) == 2 and all(isinstance(module, fx.GraphModule) for module in found):
        return found[0], found[1]
    kinds = ", ".join(type(module).__name__ for module in found)
    raise UserError(
        f"the partition function `{name}` answered {type(answer).__name__} ({kinds}); it answers two graph"
        " modules, of the forward and of the backward"
    )


def inference_with(joint: JointProgram, module: fx.GraphModule) -> Partitioned:
    """An inference program that a user edited as a graph module."""
    read = _read_forward(joint, forward_inputs(joint), module, "the edited graph")
    whole = _joined(joint, read, (), [])
    program = Program("inference", whole.program.inputs, read.nodes, whole.program.outputs)
    return Partitioned(whole, "none", program, None, modules=(module, None))


def _examples(joint: JointProgram) -> tuple[Any, ...]:
    """The joint graph's inputs: primals and tangents as lists, then the random states."""
    count = len(primals(joint))
    inputs, arriving = forward_inputs(joint), backward_tangents(joint)
    tangents = sum(isinstance(given.slot, (Tangent, CurrentInput)) for given in arriving)
    first, states = [given.node.val for given in inputs[:count]], (*inputs[count:], *arriving[tangents:])
    given = [given.node.val for given in arriving[:tangents]]
    return (first, given, *(state.node.val for state in states))


def _read_forward(
    joint: JointProgram, inputs: tuple[ProgramInput, ...], module: fx.GraphModule, name: str
) -> _Forward:
    given = _bound(module, [item.node for item in inputs], f"the forward graph of `{name}`")
    made = import_graph(module, given)
    results = outputs_of(module, made)
    count = len(forward_graph_outputs(joint))
    if len(results) < count:
        raise UserError(f"the forward graph of `{name}` has {len(results)} outputs, fewer than {count}")
    return _Forward(nodes_of(made), results[:count], results[count:])


def _read_backward(
    joint: JointProgram, count: int, module: fx.GraphModule, forward: _Forward, name: str
) -> tuple[tuple[Node, ...], list[Any]]:
    """The backward's nodes, and its results: one per input of the forward."""
    sizes = [node for node in forward.saved if not isinstance(node.val, torch.Tensor)]
    tensors = [node for node in forward.saved if isinstance(node.val, torch.Tensor)]
    wanted = [*sizes, *tensors, *(item.node for item in backward_tangents(joint))]
    made = import_graph(module, _bound(module, wanted, f"the backward graph of `{name}`"))
    results = outputs_of(module, made)
    if len(results) != count:
        found = f"{len(results)} outputs, and the function {count} inputs"
        raise UserError(f"the backward graph of `{name}` has {found}: it returns one gradient or None each")
    return nodes_of(made), results


def _bound(module: fx.GraphModule, nodes: list[Node], what: str) -> dict[fx.Node, Node]:
    placeholders = module.graph.find_nodes(op="placeholder")
    states = [node.name for node in placeholders if node.name.startswith(GRAPH_SAFE_STATES)]
    if states:
        raise UserError(
            f"{what} takes the generator `{states[0]}`, with which torch draws again in CUDA graphs, and "
            "nobody hands one in; set `torch._functorch.config.graphsafe_rng_functionalization` to False, or "
            "use a partition function of aotlens, which saves what was drawn"
        )
    if len(placeholders) != len(nodes):
        raise UserError(f"{what} takes {len(placeholders)} inputs, but {len(nodes)} arrive")
    return dict(zip(placeholders, nodes, strict=True))


def _joined(
    joint: JointProgram, read: _Forward, backward_nodes: tuple[Node, ...], grads: list[Any]
) -> JointProgram:
    """The joint program with the nodes that the function's graphs have."""
    values = {out.slot: value for out, value in zip(forward_graph_outputs(joint), read.results, strict=True)}
    if joint.training:
        slots = [out.slot for out in gradients(joint, primals(joint))]
        values |= dict(zip(slots, grads, strict=True))
    outputs = tuple(ProgramOutput(values[out.slot], out.slot) for out in joint.program.outputs)
    aliases = tuple(ProgramOutput(values[out.slot], out.slot) for out in joint.aliases)
    nodes = tuple(dict.fromkeys((*read.nodes, *backward_nodes)))
    program = Program("joint", joint.program.inputs, nodes, outputs)
    return replace(joint, program=program, aliases=aliases)


def _forward_program(joint: JointProgram, read: _Forward) -> Program:
    inputs = tuple(given for given in joint.program.inputs if not isinstance(given.slot, BACKWARD_INPUTS))
    at_hand = {id(out.value) for out in joint.forward_outputs} | {id(given.node) for given in inputs}
    saved = [node for node in dict.fromkeys(read.saved) if id(node) not in at_hand]
    outputs = (
        *joint.forward_outputs,
        *(ProgramOutput(node, SavedForBackward(node.name)) for node in saved),
    )
    return Program("forward", inputs, read.nodes, outputs)


def _backward_program(
    joint: JointProgram, read: _Forward, arriving: tuple[ProgramInput, ...], nodes: tuple[Node, ...]
) -> Program:
    saved = tuple(ProgramInput(node, SavedInput(node.name)) for node in read.saved)
    return Program("backward", (*saved, *arriving), nodes, joint.gradients)


def _describe(saved: list[Node], inputs: tuple[ProgramInput, ...]) -> tuple[Saved, ...]:
    owners = {id(given.node): given.slot for given in inputs}
    found = []
    for node in saved:
        owner: Any = owners.get(id(node))
        size = 0 if owner is not None else node_bytes(node)
        found.append(Saved(node, Reason.PARTITION_FUNCTION, owner, False, size))
    return tuple(found)
