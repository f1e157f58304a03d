"""Module text that passes a device's RNG state to a graph and takes it back.

Invariant: the state is read right before the graph and advanced right after it, by as much as the graph says;
nothing else uses the generator in between.
"""

import torch

from aotlens.capture.rng.philox import RANDOM_SOURCES, RandomSource
from aotlens.ir.origin import sites_of
from aotlens.ir.program import Program
from aotlens.ir.render import Names
from aotlens.ir.slots import RNG_STATES, BackwardRngOffset, RngOffset
from aotlens.model.report import Site
from aotlens.partition.records import Partitioned
from aotlens.runtime.module_text import TextBuilder

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
