"""A region that the user marked (`torch.compiler.nested_compile_region`), with its gradient.

Invariant: forward and backward read only their own inputs, and none of their outputs shares storage with an
input or another output, so that every call site can use the same two programs.
"""

from dataclasses import dataclass

import torch

from aotlens.ir.program import Node, Program
from aotlens.ir.slots import Gradient, Tangent, UserOutput


@dataclass(frozen=True, slots=True)
class RegionOperand:
    """The backward takes an operand of the region."""

    index: int


@dataclass(frozen=True, slots=True)
class RegionOutput:
    """The backward takes an output of the forward: a user output of the region, or a saved value."""

    index: int


@dataclass(frozen=True, slots=True)
class RegionSize:
    """The backward takes a size that the surrounding graph also knows."""

    value: torch.SymInt


@dataclass(frozen=True, slots=True)
class SavedValue:
    """One value that passes from the region's forward to its backward."""

    node: Node
    source: RegionOperand | RegionOutput | RegionSize
    reason: str


@dataclass(frozen=True, slots=True)
class RecomputedValue:
    """A forward value that the region's backward recomputes."""

    node: Node
    reason: str
    size_bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class Region:
    """One marked region for operands of one kind: traced once, partitioned once, called at each site."""

    name: str
    forward: Program
    """Returns the region's outputs, then the saved values."""
    backward: Program
    """Takes the saved values in order, then tangents; returns gradients."""
    saved: tuple[SavedValue, ...]
    recomputed: tuple[RecomputedValue, ...]

    @property
    def result_count(self) -> int:
        return len(self.forward.outputs_of(UserOutput))

    @property
    def tangents(self) -> tuple[tuple[int, Node], ...]:
        """The outputs that have a gradient, each with its tangent in the backward."""
        return tuple((int(item.slot.name), item.node) for item in self.backward.inputs_of(Tangent))

    @property
    def gradients(self) -> tuple[int, ...]:
        """For each output of the backward, the operand whose gradient it is."""
        return tuple(out.slot.index for out in self.backward.outputs if isinstance(out.slot, Gradient))
