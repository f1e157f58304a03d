"""Writes at an index that only the data tells, taken apart for Inductor.

Its lowering of `select_scatter` calls the kernel then, and fails where sizes are symbols too.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.ir.sizes import is_of_data


def select_scatter(given: torch.Tensor, part: torch.Tensor, dim: int, index: Any) -> Any:
    """`given` with `part` at one index of a dimension, by a comparison of all of its indices."""
    if not is_of_data(index):
        return NotImplemented
    dim = dim % given.dim()
    size = given.shape[dim]
    shape = [-1 if at == dim else 1 for at in range(given.dim())]
    places: Any = torch.arange(size, device=given.device).view(shape)
    is_there = (places == index) | (places == index + size)  # one behind the end for an index from the front
    return torch.where(is_there, part.unsqueeze(dim), given)


RULES: dict[Any, Callable[..., Any]] = {aten.select_scatter.default: select_scatter}
