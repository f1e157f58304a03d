"""The signature of an exported graph, by the names of its nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from aotlens.ir.graph_module import flat_outputs
from aotlens.ir.slots import Buffer, MutatedInput, Parameter, UserOutput
from aotlens.joint.convention import forward_graph_outputs, primals
from aotlens.joint.records import JointProgram


@dataclass
class BackwardSignature:
    """The gradients of an exported joint graph."""

    gradients_to_parameters: dict[str, str]
    """By output name, the parameter's qualified name."""
    gradients_to_user_inputs: dict[str, str]
    """By output name, the input's name in the graph."""
    loss_output: str
    """The output whose gradients are computed."""


@dataclass
class GraphSignature:
    """The signature of a graph that takes parameters, buffers and user inputs, and returns updated tensors
    and results."""

    parameters: list[str]
    buffers: list[str]
    user_inputs: list[str]
    user_outputs: list[str]
    inputs_to_parameters: dict[str, str]
    inputs_to_buffers: dict[str, str]
    buffers_to_mutate: dict[str, str]
    """By output name, the qualified name of the buffer whose new value it is."""
    parameters_to_mutate: dict[str, str]
    user_inputs_to_mutate: dict[str, str]
    """By output name, the name of the graph input whose new value it is."""
    in_spec: Any
    out_spec: Any
    backward_signature: BackwardSignature | None
    input_tokens: list[str] = field(default_factory=list)
    output_tokens: list[str] = field(default_factory=list)


def describe_graph(
    joint: JointProgram, module: fx.GraphModule, in_spec: Any, loss_index: int | None
) -> GraphSignature:
    """Return the signature of an exported graph; `loss_index` is set when it has a backward."""
    graph_inputs = primals(joint)
    names = [node.name for node in module.graph.find_nodes(op="placeholder")]
    inputs = {item.slot: name for item, name in zip(graph_inputs, names, strict=True)}
    results = forward_graph_outputs(joint)
    outputs = [str(value) for value in flat_outputs(module)]
    updated = [
        (name, joint.captured.inputs[out.slot.index].slot)
        for name, out in zip(outputs, results, strict=False)
        if isinstance(out.slot, MutatedInput)
    ]
    kinds = [type(slot) for slot in inputs]
    return GraphSignature(
        parameters=[slot.fqn for slot in inputs if isinstance(slot, Parameter)],
        buffers=[slot.fqn for slot in inputs if isinstance(slot, Buffer)],
        user_inputs=[
            name for name, kind in zip(names, kinds, strict=True) if kind not in (Parameter, Buffer)
        ],
        user_outputs=[
            name for name, out in zip(outputs, results, strict=False) if isinstance(out.slot, UserOutput)
        ],
        inputs_to_parameters={name: slot.fqn for slot, name in inputs.items() if isinstance(slot, Parameter)},
        inputs_to_buffers={name: slot.fqn for slot, name in inputs.items() if isinstance(slot, Buffer)},
        buffers_to_mutate={name: slot.fqn for name, slot in updated if isinstance(slot, Buffer)},
        parameters_to_mutate={name: slot.fqn for name, slot in updated if isinstance(slot, Parameter)},
        user_inputs_to_mutate={
            name: inputs[slot] for name, slot in updated if not isinstance(slot, (Buffer, Parameter))
        },
        in_spec=in_spec,
        out_spec=joint.captured.structure.result,
        backward_signature=(None if loss_index is None else _backward(joint, outputs, inputs, loss_index)),
    )


def _backward(
    joint: JointProgram, outputs: Sequence[str], inputs: dict[Any, str], loss_index: int
) -> BackwardSignature:
    results = forward_graph_outputs(joint)
    loss = next(
        name
        for name, out in zip(outputs, results, strict=False)
        if isinstance(out.slot, UserOutput) and out.slot.index == loss_index
    )
    parameters, others = {}, {}
    for name, out in zip(outputs[len(results) :], joint.gradients, strict=True):
        slot = joint.captured.inputs[out.slot.index].slot  # type: ignore[union-attr]
        if isinstance(slot, Parameter):
            parameters[name] = slot.fqn
        else:
            others[name] = inputs[slot]
    return BackwardSignature(parameters, others, loss)
