"""A region that the user marked (`torch.compiler.nested_compile_region`), with its gradient.

Invariant: forward and backward read only their own inputs, and no output of theirs shares memory with an
input or with another output, so that every call site can use the same two programs.
"""

from dataclasses import dataclass

import torch

from aotlens.ir.program import Node, Program
from aotlens.ir.slots import Gradient, Tangent, UserOutput


@dataclass(frozen=True, slots=True)
class RegionOperand:
    """The backward gets what the region was called with."""

    index: int


@dataclass(frozen=True, slots=True)
class RegionOutput:
    """The backward gets an output of the forward: a result of the region, or a value kept for this."""

    index: int


@dataclass(frozen=True, slots=True)
class RegionSize:
    """The backward gets a number that the code around the region knows too."""

    value: torch.SymInt


@dataclass(frozen=True, slots=True)
class SavedValue:
    """One value that goes from the region's forward to its backward."""

    node: Node
    source: RegionOperand | RegionOutput | RegionSize
    reason: str


@dataclass(frozen=True, slots=True)
class RecomputedValue:
    """A forward value that the region's backward computes again."""

    node: Node
    reason: str
    size_bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class Region:
    """One marked region for operands of one kind: traced once, partitioned once, called at each site."""

    name: str
    forward: Program
    """Gives the region's results, then what is kept for the backward."""
    backward: Program
    """Takes `kept` in order, then tangents; gives gradients."""
    saved: tuple[SavedValue, ...]
    recomputed: tuple[RecomputedValue, ...]

    @property
    def result_count(self) -> int:
        return sum(isinstance(out.slot, UserOutput) for out in self.forward.outputs)

    @property
    def tangents(self) -> tuple[tuple[int, Node], ...]:
        """Which results have a gradient, and the tangent that stands for it in the backward."""
        return tuple(
            (int(graph_input.slot.name), graph_input.node)
            for graph_input in self.backward.inputs
            if isinstance(graph_input.slot, Tangent)
        )

    @property
    def gradients(self) -> tuple[int, ...]:
        """For each output of the backward, the operand that it is the gradient of."""
        return tuple(out.slot.index for out in self.backward.outputs if isinstance(out.slot, Gradient))
