"""Apply the concrete strides that compiled code chose to a saved value, whose sizes may be symbolic."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from aotlens.capture.storage import has_symbols, storage_range_of
from aotlens.ir.program import Program

Strides = dict[int, tuple[Any, ...]]
"""By the identity of an output's node."""


def with_strides(val: Any, strides: tuple[int, ...]) -> Any:
    """Return the value with these strides; with symbolic sizes, contiguous in their order of dimensions.

    The value is unchanged if the strides leave gaps, which no order of symbolic sizes expresses.
    """
    storage_range = storage_range_of(val)
    if storage_range is None or storage_range.strides == strides:
        return val
    if not has_symbols(val):
        return val.as_strided(val.shape, strides)
    symbolic: dict[int, Any] = {}
    step, known = 1, 1
    for dim in sorted(range(val.dim()), key=lambda dim: (strides[dim], -dim)):
        if storage_range.sizes[dim] > 1 and strides[dim] != known:
            return val
        symbolic[dim] = step
        step, known = step * val.shape[dim], known * storage_range.sizes[dim]
    return val.as_strided(val.shape, [symbolic[dim] for dim in range(val.dim())])


def lay_out_inputs(module: fx.GraphModule, program: Program, strides: Strides) -> None:
    """Give the placeholders of a backward the strides with which the forward returns the saved values."""
    placeholders = module.graph.find_nodes(op="placeholder")
    for program_input, node in zip(program.inputs, placeholders, strict=True):
        val, chosen = node.meta["val"], strides.get(id(program_input.node))
        if chosen is not None and isinstance(val, torch.Tensor):
            node.meta["val"] = with_strides(val, chosen)


def reported_strides(program: Program, reported: Iterable[Any] | None) -> Strides:
    """Return the strides that a compiler reported for the outputs of a forward."""
    outputs = zip(program.outputs, reported or (), strict=False)
    return {id(output.value): tuple(stride) for output, stride in outputs if stride is not None}
