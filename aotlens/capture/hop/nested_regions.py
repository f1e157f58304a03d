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
    values = tuple(_like(output) for output in outputs)
    node = recording.add_node(invoke_subgraph, node_args, {}, values)
    for index, (output, value) in enumerate(zip(outputs, values, strict=True)):
        if not isinstance(value, torch.Tensor):
            continue
        inside = program is region.forward and index >= region.result_count
        item = _saved_item(recording, node, index, output) if inside else recording.item(node, index)
        recording.track(value, Storage(item, value))
    return values, (_module_of(recording, part), program.name, *args[2:])


def _saved_item(recording: Recording, node: Node, index: int, inside: Node) -> Node:
    """Return a value that a region saves for its backward, named and located like the inner value."""
    origin = replace(recording.origin, location=inside.origin.location, op=inside.origin.op, effect=False)
    item = Node(recording.name(inside.name), getitem, (node, index), {}, node.val[index], origin)
    recording.nodes.append(item)
    return item


def _like(output: Any) -> Any:
    """Return a new fake tensor like an output of a region."""
    if not isinstance(output, Node):
        return output
    val = output.val
    if not isinstance(val, torch.Tensor):
        return val
    return torch.empty_strided(val.shape, val.stride(), dtype=val.dtype, device=val.device)


def _module_of(recording: Recording, part: RegionPart) -> Any:
    """Return the region's forward as a graph module without saved values, for stages that replay the call."""
    key = ("module", part.program.name)
    if key not in recording.regions:
        region = part.region
        outputs = region.forward.outputs[: region.result_count]
        nodes = reachable([output.value for output in outputs], region.forward.nodes)
        program = Program(region.forward.name, region.forward.inputs, nodes, outputs)
        recording.regions[key] = (to_graph_module(program, training=False),)
    return recording.regions[key][0]
