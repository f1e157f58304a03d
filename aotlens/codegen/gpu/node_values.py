"""What each launch of a kernel should write, by what torch itself computes for the nodes of the graph.

Invariant: a buffer is compared with a node only where Inductor says that it holds that node's value.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import fx

from aotlens.codegen.gpu.interpreter.records import LaunchLocation
from aotlens.codegen.gpu.records import RunnableGraph
from aotlens.ir.graph_module import to_graph_module
from aotlens.ir.program import Program

_WRITTEN = ("out_ptr", "in_out_ptr")
"""How Inductor names a kernel's parameters that it writes to."""

Values = dict[str, Any]
"""By the name of our node."""


def node_values(
    program: Program, phase: str, inputs: list[Any], drawing: AbstractContextManager[Any] | None = None
) -> Values:
    """Run the graph by torch, node by node; `drawing` gives its random numbers."""
    keeper = _ValueRecorder(to_graph_module(program, phase != "inference"), program)
    copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    with torch.no_grad(), drawing or nullcontext():
        keeper.run(*copies[: len(program.inputs)])
    return keeper.values


class _ValueRecorder(fx.Interpreter):
    """Keeps a copy of every value: the graph may write to it afterwards."""

    def __init__(self, module: fx.GraphModule, program: Program) -> None:
        super().__init__(module)
        placeholders = module.graph.find_nodes(op="placeholder")
        self._names = {
            placeholder: program_input.node.name
            for placeholder, program_input in zip(placeholders, program.inputs, strict=True)
        }
        self.values: Values = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        name = self._names.get(n) or n.meta.get("aotlens_node")
        if name is not None:
            self.values[name] = value.clone() if isinstance(value, torch.Tensor) else value
        if n.target is torch.ops.aten.copy_.default and n.args[0] in self._names:
            self.values[self._names[n.args[0]]] = value.clone()  # what a kernel writes into an input
        return value


def arguments_of(graph: RunnableGraph, location: LaunchLocation) -> list[str | None]:
    """The wrapper's names of the buffers that a launch is given; None for what is no plain name."""
    kernel = next(
        (candidate for candidate in graph.lowered.kernels if candidate.name == location.kernel), None
    )
    if kernel is None or location.occurrence >= len(kernel.calls):
        return []
    launch = kernel.calls[location.occurrence]
    return [launch.buffer(index) for index in range(len(launch.arguments))]


def expected_values(
    graph: RunnableGraph, location: LaunchLocation, values: Values
) -> dict[int, tuple[str, torch.Tensor]]:
    """By the position of an argument that holds a node's value after the launch, the node and that value."""
    names = arguments_of(graph, location)
    nodes = {index: graph.buffers[name] for index, name in enumerate(names) if name and name in graph.buffers}
    overwritten = _overwritten(graph, location)
    known = {
        index: node
        for index, node in nodes.items()
        if node not in overwritten or not _is_computed(names[index])
    }
    return {index: (node, values[node]) for index, node in known.items() if _is_tensor(values.get(node))}


def _overwritten(graph: RunnableGraph, location: LaunchLocation) -> frozenset[str]:
    """The nodes whose buffers hold another node's value after the launch: it computes that one in place."""
    calls = [call for call in graph.lowered.calls if call.name == location.kernel]
    if location.occurrence >= len(calls):
        return frozenset()
    call = calls[location.occurrence]
    written = {access.node for access in call.accesses if access.written}
    return frozenset(written - set(call.nodes))


def _is_computed(buffer: str | None) -> bool:
    """Whether the graph makes it: an input holds what the last operator puts into it."""
    return buffer is not None and buffer.startswith("buf")


def written_arguments(graph: RunnableGraph, kernel: str) -> Iterator[int]:
    """The positions of the arguments that a kernel writes to."""
    signature = re.search(rf"^def {kernel}\((.*?)\):$", kernel_source(graph, kernel), re.MULTILINE)
    for index, parameter in enumerate(signature.group(1).split(",") if signature else ()):
        if parameter.strip().startswith(_WRITTEN):
            yield index


def kernel_source(graph: RunnableGraph, kernel: str) -> str:
    """Triton's; empty for a call of a library."""
    return next((candidate.source for candidate in graph.lowered.kernels if candidate.name == kernel), "")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
