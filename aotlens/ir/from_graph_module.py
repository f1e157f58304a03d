"""Graph modules as our nodes: the result of a partition function, or a joint graph that a user edited.

Invariant: a node that came from one of our programs keeps its origin, wherever the user moved it.
"""

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from aotlens.ir.names import free_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, getitem, map_leaves, op_name
from aotlens.ir.slots import UserInput, UserOutput

Converted = dict[fx.Node, Any]
"""By graph node: our node, or the program of a higher-order operator's subgraph."""


def import_graph(module: fx.GraphModule, placeholders: Mapping[fx.Node, Node]) -> Converted:
    """Convert each node of the graph but its output; `placeholders` maps some of them to existing nodes."""
    converted: Converted = dict(placeholders)
    for node in module.graph.nodes:
        if node.op != "output" and node not in converted:
            converted[node] = import_node(module, node, converted)
    return converted


def nodes_of(converted: Converted) -> tuple[Node, ...]:
    """Return the nodes that compute something, in order."""
    return tuple(
        ours for node, ours in converted.items() if node.op != "placeholder" and isinstance(ours, Node)
    )


def _subgraph(module: fx.GraphModule, name: str) -> Program:
    """Convert a subgraph of a higher-order operator."""
    converted = import_graph(module, {})
    placeholders = module.graph.find_nodes(op="placeholder")
    inputs = [
        ProgramInput(converted[node], UserInput(node.name, index)) for index, node in enumerate(placeholders)
    ]
    results = outputs_of(module, converted)
    outputs = [
        ProgramOutput(value, UserOutput(f"out[{index}]", index)) for index, value in enumerate(results)
    ]
    return Program(name, tuple(inputs), nodes_of(converted), tuple(outputs))


def outputs_of(module: fx.GraphModule, converted: Converted) -> list[Any]:
    """Return the graph's flat outputs, as nodes or plain values."""
    return [converted[value] if isinstance(value, fx.Node) else value for value in flat_outputs(module)]


def flat_outputs(module: fx.GraphModule) -> list[Any]:
    results: Any = module.graph.output_node().args[0]
    return list(results) if isinstance(results, (list, tuple)) else [results]


def import_node(module: fx.GraphModule, node: fx.Node, converted: Converted) -> Node | Program:
    """Convert one node; `converted` holds its inputs."""
    name, val, origin = free_name(node.name), _value(node), _origin(node)
    if node.op == "placeholder":
        return Node(name, None, (), {}, val, origin)
    if node.op == "get_attr":
        constant = operator.attrgetter(str(node.target))(module)
        if isinstance(constant, fx.GraphModule):
            return _subgraph(constant, name)
        return Node(name, None, (), {}, constant if val is None else val, origin, constant=constant)
    args = tuple(map_argument(arg, converted) for arg in node.args)
    kwargs = {key: map_argument(arg, converted) for key, arg in node.kwargs.items()}
    op: Any = getitem if node.target is operator.getitem else node.target
    if node.op == "call_method":  # of a generator: methods of tensors are operators by then
        op = getattr(torch.Generator, str(node.target))
    return Node(name, op, args, kwargs, val, origin)


def _value(node: fx.Node) -> Any:
    val = node.meta.get("val")
    return tuple(val) if isinstance(val, list) else val


def _origin(node: fx.Node) -> Origin:
    origin = node.meta.get("aotlens_origin")
    if origin is not None:
        return origin
    schema = getattr(node.target, "_schema", None)
    name = op_name(node.target) if callable(node.target) else ""
    effect = schema is not None and schema.is_mutable
    return Origin(NO_ORIGIN, name, stage="joint", reason="added by the user's graph pass", effect=effect)


def map_argument(value: Any, converted: Converted) -> Any:
    """Return nested arguments of a graph node with our nodes."""

    def change(leaf: Any) -> Any:
        if isinstance(leaf, slice):
            return slice(*map(change, (leaf.start, leaf.stop, leaf.step)))
        return converted[leaf] if isinstance(leaf, fx.Node) else leaf

    return map_leaves(value, change)
