"""Where the tensors of a recorded graph are, and those on the CPU that must be on the GPU.

Invariant: a graph that has no tensor on a GPU was written without one in mind, and all of it is moved; in any
other, a tensor stays where the script has put it unless an operator needs it beside one on the GPU.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from aotlens.capture.operators import aten
from aotlens.partition.records import Partitioned

GPU = torch.device("cuda", 0)
TRANSFERS = frozenset({aten._to_copy.default, torch.ops.prims.device_put.default, aten.copy.default})
"""Operators that take a tensor of one device and give one of another."""


def has_gpu_tensors(parts: Partitioned) -> bool:
    """Whether the script has put any tensor of the target on a GPU."""
    programs = [parts.forward] + ([parts.backward] if parts.backward is not None else [])
    values = (node.val for program in programs for node in program.nodes)
    inputs = (given.node.val for program in programs for given in program.inputs)
    return any(_is_on_gpu(value) for several in (inputs, values) for value in several)


def beside_gpu_tensors(module: fx.GraphModule) -> dict[fx.Node, None]:
    """CPU tensors that meet GPU tensors in one operator, with what they are computed from."""
    found: dict[fx.Node, None] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target in TRANSFERS or not _is_on_gpu(node.meta.get("val")):
            continue
        todo = [given for given in node.all_input_nodes if _is_cpu_array(given)]
        while todo:
            given = todo.pop()
            if given not in found:
                found[given] = None
                todo += [one for one in given.all_input_nodes if _on_cpu(one)]
    return found


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _is_on_gpu(value: Any) -> bool:
    return any(tensor.device.type == "cuda" for tensor in _tensors(value))


def _on_cpu(node: fx.Node) -> bool:
    return any(tensor.device.type == "cpu" for tensor in _tensors(node.meta.get("val")))


def _is_cpu_array(node: fx.Node) -> bool:
    """A number on the CPU goes with the launch."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() > 0
