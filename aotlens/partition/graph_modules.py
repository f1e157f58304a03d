"""Partition functions over graph modules, for the `partition_fn` of `functorch.compile`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from aotlens.errors import UserError
from aotlens.ir.graph_module import flat_outputs, import_graph, nodes_of
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, reachable, without_backward_effects
from aotlens.ir.slots import (
    BACKWARD_INPUTS,
    BackwardRngState,
    Gradient,
    GraphInput,
    Parameter,
    RngState,
    Tangent,
    UserInput,
    UserOutput,
)
from aotlens.joint.convention import CHANGED
from aotlens.joint.records import Joint
from aotlens.partition.rules import is_number
from aotlens.partition.sides import without_forward_effects
from aotlens.partition.stage import split_joint
from aotlens.policy import Policy
from aotlens.process import deferred_collection
from aotlens.torch_api.aot import LazyGraphModule


@dataclass(frozen=True, slots=True)
class _Read:
    """A joint graph module and the same graph as a `Program`."""

    module: fx.GraphModule
    joint: Joint
    by_node: dict[int, fx.Node]

    def original(self, nodes: Sequence[Node]) -> list[fx.Node]:
        return [self.by_node[id(node)] for node in nodes]


def split_graph_module(
    module: fx.GraphModule, num_fwd_outputs: int, policy: str, static: Sequence[int] = ()
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split a joint graph module into forward and backward, in the calling convention of `functorch.compile`.

    `static` are the positions of the inputs that live as long as the module: its parameters.

    Raises:
        UserError: the graph has fewer outputs than the forward is said to have.
    """
    with deferred_collection():
        return _split(_read(module, num_fwd_outputs, frozenset(static)), num_fwd_outputs, policy)


def _split(read: _Read, num_fwd_outputs: int, policy: str) -> tuple[fx.GraphModule, fx.GraphModule]:
    module, joint = read.module, read.joint
    split = split_joint(joint, Policy.parse(policy))
    tensors = [node for node in split.saved if not is_number(node)]
    sizes = [node for node in split.saved if is_number(node)]
    inputs = [item.node for item in joint.program.inputs_except(*BACKWARD_INPUTS)]
    backward_inputs = [item.node for item in joint.program.inputs_of(*BACKWARD_INPUTS)]
    results = flat_outputs(module)
    computed = [*(out.value for out in joint.forward_outputs), *split.saved]
    forward = _extract(
        module,
        read.original(inputs),
        read.original(reachable(computed, without_backward_effects(joint.program.nodes))),
        [*results[:num_fwd_outputs], *read.original([*tensors, *sizes])],
    )
    backward = _extract(
        module,
        read.original([*sizes, *tensors, *backward_inputs]),
        read.original(without_forward_effects(split.backward_nodes)),
        results[num_fwd_outputs:],
    )
    _describe_outputs(module, forward, backward, num_fwd_outputs)
    return forward, backward


def _read(module: fx.GraphModule, num_fwd_outputs: int, static: frozenset[int]) -> _Read:
    """Return the user's joint graph as a program, with the graph's node for each of ours."""
    outputs_of_module = flat_outputs(module)
    if len(outputs_of_module) < num_fwd_outputs:
        raise UserError(
            f"the joint graph has {len(outputs_of_module)} outputs, fewer than {num_fwd_outputs=}"
        )
    made = import_graph(module, {})
    inputs = []
    for index, node in enumerate(module.graph.find_nodes(op="placeholder")):
        parameter = Parameter(node.name, index, node.name) if index in static else None
        inputs.append(ProgramInput(made[node], parameter or _slot(node.name, index)))
    outputs = []
    for position, value in enumerate(outputs_of_module):
        slot = (
            UserOutput(f"out[{position}]", position)
            if position < num_fwd_outputs
            else Gradient(f"gradient {position}", position)
        )
        outputs.append(ProgramOutput(made[value] if isinstance(value, fx.Node) else value, slot))
    program = Program("joint", tuple(inputs), nodes_of(made), tuple(outputs))
    changed = frozenset(id(ours) for node, ours in made.items() if node.meta.get(CHANGED))
    return _Read(module, Joint(program, changed), {id(ours): node for node, ours in made.items()})


def _slot(name: str, index: int) -> GraphInput:
    """Return the slot of a placeholder by its name in torch's convention."""
    if name.startswith("tangents"):
        return Tangent(name)
    if name.startswith(("fwd_seed", "fwd_base_offset")):
        return RngState(name)
    if name.startswith(("bwd_seed", "bwd_base_offset")):
        return BackwardRngState(name)
    return UserInput(name, index)


def _extract(
    module: fx.GraphModule, inputs: Sequence[fx.Node], nodes: Sequence[fx.Node], results: Sequence[Any]
) -> fx.GraphModule:
    """Return a graph module of some nodes of another; inputs that are not placeholders there become
    placeholders."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        made[node] = graph.placeholder(node.name)
        made[node].target = made[node].name
        made[node].meta = dict(node.meta)
    for node in nodes:
        for source in node.all_input_nodes:  # a subgraph of a higher-order operator
            if source not in made:
                made[source] = graph.node_copy(source)
        if node not in made:
            made[node] = graph.node_copy(node, lambda source: made[source])
    graph.output(tuple(made[value] if isinstance(value, fx.Node) else value for value in results))
    graph.lint()
    return LazyGraphModule(module, graph)  # generates its Python text when it is needed


def _describe_outputs(
    module: fx.GraphModule, forward: fx.GraphModule, backward: fx.GraphModule, count: int
) -> None:
    """Copy the descriptors of the joint graph's outputs to the two graphs."""
    descriptors = module.graph.output_node().meta.get("desc")
    if descriptors is not None:
        forward.graph.output_node().meta["desc"] = list(descriptors[:count])
        backward.graph.output_node().meta["desc"] = list(descriptors[count:])


Modules = tuple[fx.GraphModule, fx.GraphModule]


def default_partition(
    joint_module: fx.GraphModule,
    _joint_inputs: Any,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: list[int] | None = None,
    static_lifetime_input_nodes: Any = None,
) -> Modules:
    """Split a joint graph; every forward value that the backward reads is saved."""
    return split_graph_module(joint_module, num_fwd_outputs, "default", static_lifetime_input_indices or ())


def min_cut_rematerialization_partition(
    joint_module: fx.GraphModule,
    _joint_inputs: Any,
    compiler: str = "inductor",
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: list[int] | None = None,
) -> Modules:
    """Split a joint graph; a minimum cut decides which values are saved and which are recomputed."""
    return split_graph_module(joint_module, num_fwd_outputs, "min-cut", static_lifetime_input_indices or ())
