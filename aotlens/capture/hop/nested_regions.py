"""Calls of a marked region (`invoke_subgraph`) that is split into forward and backward, as nodes.

Invariant: each call is one node of the forward, and one of the backward that reads the values the first one
saved; all calls share the two programs.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.storage import Storage
from aotlens.ir.graph_module import to_graph_module
from aotlens.ir.program import Node, Program, getitem, must_run, reachable
from aotlens.ir.regions import Region
from aotlens.torch_api.hop import invoke_subgraph


@dataclass(frozen=True, slots=True)
class RegionPart:
    """A region's forward or backward, as an argument of the operator."""

    region: Region
    program: Program


def record_region_part(
    recording: Recording, part: RegionPart, args: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...]]:
    """Record one call of a split region; return its outputs, and its arguments for a replay."""
    program, region = part.program, part.region
    node_args = (program, program.name, *(recording.argument(arg) for arg in args[2:]))
    if any(must_run(node) for node in program.nodes):
        recording.origin = replace(recording.origin, effect=True)
    outputs = [output.value for output in program.outputs]
    known = [output.val if isinstance(output, Node) else output for output in outputs]
    values = tuple(empty_with_strides_of(val) if isinstance(val, torch.Tensor) else val for val in known)
    node = recording.add_node(invoke_subgraph, node_args, {}, values)
    for index, (output, value) in enumerate(zip(outputs, values, strict=True)):
        if not isinstance(value, torch.Tensor):
            continue
        inside = program is region.forward and index >= region.result_count
        item = _saved_item(recording, node, index, output) if inside else recording.item(node, index)
        recording.track(value, Storage(item, value))
    return values, (module_of(recording, _without_saved_values(region)), program.name, *args[2:])


def _saved_item(recording: Recording, node: Node, index: int, inside: Node) -> Node:
    """Return a value that a region saves for its backward, named and located like the inner value."""
    origin = replace(recording.origin, location=inside.origin.location, op=inside.origin.op, effect=False)
    item = Node(recording.name(inside.name), getitem, (node, index), {}, node.val[index], origin)
    recording.nodes.append(item)
    return item


def empty_with_strides_of(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)


def module_of(recording: Recording, program: Program) -> Any:
    """Return a subgraph as a graph module, the same for all calls, for stages that replay the call."""
    key = ("module", program.name)
    if key not in recording.regions:
        recording.regions[key] = (to_graph_module(program, training=False),)
    return recording.regions[key][0]


def _without_saved_values(region: Region) -> Program:
    """Return the forward without the values that it saves."""
    outputs = region.forward.outputs[: region.result_count]
    nodes = reachable([output.value for output in outputs], region.forward.nodes)
    return Program(region.forward.name, region.forward.inputs, nodes, outputs)
