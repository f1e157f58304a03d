"""Apply the concrete strides that compiled code chose to a saved value, whose sizes may be symbolic."""

from typing import Any

import torch
from torch import fx

from aotlens.capture.storage import has_symbols, storage_range_of


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


def lay_out(node: fx.Node, strides: tuple[int, ...] | None) -> None:
    """Give a saved value's placeholder the strides with which the forward returns it; None leaves it
    unchanged."""
    val = node.meta["val"]
    if strides is not None and isinstance(val, torch.Tensor):
        node.meta["val"] = with_strides(val, strides)
