"""The user's partition functions over graph modules: `partition_fn` of `functorch.compile`.

Invariant: the two graph modules that the function returns are compiled as they are; their nodes are imported
so that the wrapper and the report know what is saved and which node computes each output.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from aotlens.errors import UserError
from aotlens.ir.graph_module import import_graph, nodes_of, outputs_of
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput
from aotlens.ir.slots import Buffer, CurrentInput, Parameter, SavedInput, Tangent
from aotlens.joint.convention import (
    backward_tangents,
    forward_graph_outputs,
    forward_inputs,
    gradient_outputs,
    joint_module,
    primals,
)
from aotlens.joint.records import JointProgram
from aotlens.options import PartitionFunction
from aotlens.partition.records import Partitioned, Saved
from aotlens.partition.rules import Reason
from aotlens.partition.sides import forward_program
from aotlens.partition.storages import node_bytes
from aotlens.torch_api.dynamo.state import TracingContext, tracing

GRAPH_SAFE_STATES = ("fwd_rng_state_", "bwd_rng_state_")
"""Prefixes of the placeholders that torch's partition functions add for generators."""


@dataclass(frozen=True, slots=True)
class _Forward:
    """The forward graph module as imported nodes."""

    nodes: tuple[Node, ...]
    results: list[Any]
    """The joint program's forward outputs, in torch's order."""
    saved: list[Node]
    """The saved values: tensors, then sizes."""


def partition_with(
    joint: JointProgram, function: PartitionFunction, module: fx.GraphModule | None = None
) -> Partitioned:
    """Split the joint program, or its edited form `module`, with the user's function.

    Raises:
        UserError: its graphs do not fit the joint graph's inputs and outputs.
    """
    inputs = forward_inputs(joint)
    incoming = backward_tangents(joint)
    context = TracingContext.try_get() or TracingContext(joint.captured.fake_mode)
    with tracing(context):  # torch's partition functions make examples of RNG states
        answer = function(
            module if module is not None else joint_module(joint),
            _examples(joint),
            num_fwd_outputs=len(forward_graph_outputs(joint)),
            static_lifetime_input_indices=[
                index
                for index, program_input in enumerate(inputs)
                if isinstance(program_input.slot, (Parameter, Buffer))
            ],
        )
    name = getattr(function, "__name__", type(function).__name__)
    forward_module, backward_module = _two_modules(answer, name)
    read = _read_forward(joint, inputs, forward_module, name)
    backward_nodes, grads = _read_backward(joint, backward_module, read, name)
    whole = _with_nodes_of(joint, read, backward_nodes, grads)
    saved = (ProgramInput(node, SavedInput(node.name)) for node in read.saved)
    return Partitioned(
        joint=whole,
        policy=name,
        forward=replace(forward_program(whole, tuple(dict.fromkeys(read.saved))), nodes=read.nodes),
        backward=Program("backward", (*saved, *incoming), backward_nodes, whole.gradients),
        saved=_describe(read.saved, inputs),
        modules=(forward_module, backward_module),
    )


def _two_modules(answer: object, name: str) -> tuple[fx.GraphModule, fx.GraphModule]:
    modules = answer if isinstance(answer, (tuple, list)) else (answer,)
    if len(modules) == 2 and all(isinstance(module, fx.GraphModule) for module in modules):
        return modules[0], modules[1]
    kinds = ", ".join(type(module).__name__ for module in modules)
    raise UserError(
        f"the partition function `{name}` returned {type(answer).__name__} ({kinds}); it must return two"
        " graph modules, the forward and the backward"
    )


def inference_with(joint: JointProgram, module: fx.GraphModule) -> Partitioned:
    """Return the partition of an inference program that the user edited as a graph module."""
    read = _read_forward(joint, forward_inputs(joint), module, "the edited graph")
    whole = _with_nodes_of(joint, read, (), [])
    program = replace(whole.program, name="inference", nodes=read.nodes)
    return Partitioned(whole, program, None, "none", modules=(module, None))


def _examples(joint: JointProgram) -> tuple[Any, ...]:
    """Return the joint graph's inputs: primals and tangents as lists, then the RNG states."""
    count = len(primals(joint))
    inputs, incoming = forward_inputs(joint), backward_tangents(joint)
    tangents = sum(isinstance(program_input.slot, (Tangent, CurrentInput)) for program_input in incoming)
    primal_values = [program_input.node.val for program_input in inputs[:count]]
    tangent_values = [program_input.node.val for program_input in incoming[:tangents]]
    states = (*inputs[count:], *incoming[tangents:])
    return (primal_values, tangent_values, *(state.node.val for state in states))


def _read_forward(
    joint: JointProgram, inputs: tuple[ProgramInput, ...], module: fx.GraphModule, name: str
) -> _Forward:
    bound = _bind_placeholders(module, [item.node for item in inputs], f"the forward graph of `{name}`")
    made = import_graph(module, bound)
    results = outputs_of(module, made)
    count = len(forward_graph_outputs(joint))
    if len(results) < count:
        raise UserError(f"the forward graph of `{name}` has {len(results)} outputs, fewer than {count}")
    return _Forward(nodes_of(made), results[:count], results[count:])


def _read_backward(
    joint: JointProgram, module: fx.GraphModule, forward: _Forward, name: str
) -> tuple[tuple[Node, ...], list[Any]]:
    """Import the backward's nodes and its outputs, one gradient per input of the forward."""
    sizes = [node for node in forward.saved if not isinstance(node.val, torch.Tensor)]
    tensors = [node for node in forward.saved if isinstance(node.val, torch.Tensor)]
    wanted = [*sizes, *tensors, *(item.node for item in backward_tangents(joint))]
    made = import_graph(module, _bind_placeholders(module, wanted, f"the backward graph of `{name}`"))
    results, count = outputs_of(module, made), len(gradient_outputs(joint))
    if len(results) != count:
        counts = f"{len(results)} outputs, but the function has {count} inputs"
        raise UserError(
            f"the backward graph of `{name}` has {counts}: it must return one gradient or None per input"
        )
    return nodes_of(made), results


def _bind_placeholders(module: fx.GraphModule, nodes: list[Node], what: str) -> dict[fx.Node, Node]:
    placeholders = module.graph.find_nodes(op="placeholder")
    states = [node.name for node in placeholders if node.name.startswith(GRAPH_SAFE_STATES)]
    if states:
        raise UserError(
            f"{what} takes the generator `{states[0]}`, which torch needs to recompute random numbers in"
            " CUDA graphs, and which is not passed; set"
            " `torch._functorch.config.graphsafe_rng_functionalization` to False, or use a partition"
            " function of aotlens, which saves random values"
        )
    if len(placeholders) != len(nodes):
        raise UserError(f"{what} takes {len(placeholders)} inputs, but {len(nodes)} are passed")
    return dict(zip(placeholders, nodes, strict=True))


def _with_nodes_of(
    joint: JointProgram, read: _Forward, backward_nodes: tuple[Node, ...], grads: list[Any]
) -> JointProgram:
    """Return the joint program with the nodes of the function's graphs."""
    values = {out.slot: value for out, value in zip(forward_graph_outputs(joint), read.results, strict=True)}
    if joint.training:
        slots = [out.slot for out in gradient_outputs(joint)]
        values |= dict(zip(slots, grads, strict=True))
    outputs = tuple(ProgramOutput(values[out.slot], out.slot) for out in joint.program.outputs)
    aliases = tuple(ProgramOutput(values[out.slot], out.slot) for out in joint.aliases)
    nodes = tuple(dict.fromkeys((*read.nodes, *backward_nodes)))
    program = Program("joint", joint.program.inputs, nodes, outputs)
    return replace(joint, program=program, aliases=aliases)


def _describe(saved: list[Node], inputs: tuple[ProgramInput, ...]) -> tuple[Saved, ...]:
    owners = {id(program_input.node): program_input.slot for program_input in inputs}
    rows = []
    for node in saved:
        owner: Any = owners.get(id(node))
        size = 0 if owner is not None else node_bytes(node)
        rows.append(Saved(node, Reason.PARTITION_FUNCTION, owner, False, size))
    return tuple(rows)
