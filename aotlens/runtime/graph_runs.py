"""Module text that runs a graph: under which modes, on which tensors, with which RNG state.

Invariant: a device's RNG state is read right before the graph and advanced right after it, by as much as the
graph says; nothing else uses the generator in between.
"""

from contextlib import nullcontext
from typing import Any

import torch

from aotlens.capture.records import AutogradChange
from aotlens.capture.rng.rng_state import RANDOM_SOURCES, RandomSource
from aotlens.codegen.records import GraphCode
from aotlens.ir.origin import sites_of
from aotlens.ir.program import Program
from aotlens.ir.render import Names
from aotlens.ir.slots import RNG_STATES, BackwardRngOffset, RngOffset
from aotlens.model.report import Site
from aotlens.partition.records import Partitioned
from aotlens.runtime.graph_text import graph_name
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.subclasses import write_unwrapping
from aotlens.torch_api.operators import OpOverload, has_composite_kernel


def write_run(
    builder: TextBuilder, parts: Partitioned, code: GraphCode, names: Names, results: list[str]
) -> None:
    """Write the run of the forward, or of the inference graph, on the caller's tensors."""
    inputs = [names.node(graph_input.node) for graph_input in code.program.inputs]
    context = graph_context(parts) if parts.backward is not None else inference_context(parts, code)
    write_unwrapping(builder, parts.joint.captured, names)
    write_reading(builder, parts, code.program, names)
    with builder.block(context) if context else nullcontext():
        builder.unpack(results, call_graph(code, inputs))
    write_advance(builder, parts, code.program, RngOffset().name)


def graph_context(parts: Partitioned) -> str:
    """Return the `with` line under which a graph runs: its operators already contain the recorded modes."""
    casts = parts.joint.captured.modes.casts
    return "with below_views(), without_autocast():" if casts else "with below_views():"


MANY_OPERATORS = 32
"""From so many operators on, `below_views` costs less than autograd's look at each of them."""


def records_nothing(parts: Partitioned) -> bool:
    """Return True if autograd has nothing to record in any call that the text accepts."""
    captured, changes = parts.joint.captured, parts.joint.meta.inputs
    if parts.backward is not None:
        return False
    return not captured.grad_enabled or not (
        any(captured_input.requires_grad for captured_input in captured.inputs)
        or any(info.autograd is not AutogradChange.NONE for info in changes)
    )


def inference_context(parts: Partitioned, code: GraphCode) -> str:
    """Return the `with` line under which a graph without backward runs; empty if it needs none.

    Where autograd has nothing to record, `below_views` matters to views and writes alone.
    """
    is_own_text = code.compile is None and code.standalone is None
    nodes = [node for node in code.program.nodes if node.constant is None]
    is_short = is_own_text and len(nodes) < MANY_OPERATORS
    if is_short and records_nothing(parts) and all(_only_computes(node.op) for node in nodes):
        return "with without_autocast():" if parts.joint.captured.modes.casts else ""
    return graph_context(parts)


def _only_computes(op: Any) -> bool:
    """Return True if an operator of torch's has a kernel that returns new tensors and writes to none."""
    if not isinstance(op, OpOverload) or op.namespace != "aten" or has_composite_kernel(op):
        return False
    return all(argument.alias_info is None for argument in op._schema.arguments)


def call_graph(code: GraphCode, arguments: list[str]) -> str:
    """Return the call of a graph, in the calling convention of its code."""
    listed = ", ".join(arguments)
    name = graph_name(code.program)
    return f"{name}([{listed}])" if code.boxed else f"{name}({listed})"


REASON = "random numbers are a function of the seed and offset that the graph takes"


def uses_functional_rng(program: Program) -> bool:
    """Return True if the graph takes seed and offset and returns the new offset."""
    return any(isinstance(out.slot, (RngOffset, BackwardRngOffset)) for out in program.outputs)


def write_reading(builder: TextBuilder, parts: Partitioned, program: Program, names: Names) -> None:
    """Bind the graph's seed and base offset."""
    states = [item.node for item in program.inputs_of(*RNG_STATES)]
    if not states:
        return
    device, source = _source(parts)
    with builder.step("read RNG state", REASON, 0, _sites(program)):
        targets = ", ".join(names.node(node) for node in states)
        builder.add(f"{targets} = {source.read.format(device=repr(str(device)))}")


def write_advance(builder: TextBuilder, parts: Partitioned, program: Program, offset: str) -> None:
    """Advance the generator to the graph's `offset`; CUDA requires multiples of four."""
    if not uses_functional_rng(program):
        return
    device, source = _source(parts)
    whole = f"(int({offset}) + 3) // 4 * 4"
    with builder.step("advance RNG state", REASON, 0, _sites(program)):
        builder.add(source.advance.format(offset=whole, device=repr(str(device))))


def _source(parts: Partitioned) -> tuple[torch.device, RandomSource]:
    device = parts.joint.recorded.random_device
    assert device is not None  # since a graph uses functional RNG
    return device, RANDOM_SOURCES[device.type]


def _sites(program: Program) -> tuple[Site, ...]:
    """Return the user's expressions with random ops."""
    operators = {source.operator for source in RANDOM_SOURCES.values()}
    return sites_of(node.origin for node in program.nodes if node.op in operators)
