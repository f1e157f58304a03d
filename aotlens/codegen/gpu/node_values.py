"""The values that each kernel launch should write, computed node by node with torch.

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
"""Prefixes of Inductor's names for kernel parameters that are written."""

Values = dict[str, Any]
"""Values by the program's node name."""


def node_values(
    program: Program, phase: str, inputs: list[Any], drawing: AbstractContextManager[Any] | None = None
) -> Values:
    """Run the graph node by node with torch; `drawing` provides its random numbers."""
    keeper = _ValueRecorder(to_graph_module(program, phase != "inference"), program)
    copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    with torch.no_grad(), drawing or nullcontext():
        keeper.run(*copies[: len(program.inputs)])
    return keeper.values


class _ValueRecorder(fx.Interpreter):
    """Records a copy of every value, because the graph may mutate it later."""

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
            # the value that a kernel writes into an input
            self.values[self._names[n.args[0]]] = value.clone()
        return value


def arguments_of(graph: RunnableGraph, location: LaunchLocation) -> list[str | None]:
    """Return the wrapper's names of a launch's buffers; None for an argument that is not a name."""
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
    """Map the position of each argument to the node whose value it holds after the launch, and that value."""
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
    """Return the nodes whose buffers hold another node's value after the launch, which computes in place."""
    calls = [call for call in graph.lowered.calls if call.name == location.kernel]
    if location.occurrence >= len(calls):
        return frozenset()
    call = calls[location.occurrence]
    written = {access.node for access in call.accesses if access.written}
    return frozenset(written - set(call.nodes))


def _is_computed(buffer: str | None) -> bool:
    """Return True if the graph allocates the buffer; an input holds the last value written to it."""
    return buffer is not None and buffer.startswith("buf")


def written_arguments(graph: RunnableGraph, kernel: str) -> Iterator[int]:
    """Yield the positions of the arguments that a kernel writes."""
    signature = re.search(rf"^def {kernel}\((.*?)\):$", kernel_source(graph, kernel), re.MULTILINE)
    for index, parameter in enumerate(signature.group(1).split(",") if signature else ()):
        if parameter.strip().startswith(_WRITTEN):
            yield index


def kernel_source(graph: RunnableGraph, kernel: str) -> str:
    """Return a kernel's Triton source; empty for a library call."""
    return next((candidate.source for candidate in graph.lowered.kernels if candidate.name == kernel), "")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
