"""Matrix products of two types, which a kernel refuses and torch's fake kernels do not.

So that the mistake is told when the function is captured, at the user's line.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.torch_api.operators import check

aten = torch.ops.aten

FACTORS = {aten.mm.default: 0, aten.mv.default: 0, aten.addmm.default: 1}
"""By operator: the position of the first of its two factors."""


def checked(func: Any, first: int) -> Callable[..., Any]:
    """The operator, which raises RuntimeError for factors of two types."""

    def product(*args: Any, **kwargs: Any) -> Any:
        one, other = args[first : first + 2]
        check(one.dtype == other.dtype, lambda: _refusal(one, other))
        return func(*args, **kwargs)

    return product


def _refusal(one: torch.Tensor, other: torch.Tensor) -> str:
    return (
        f"the factors of a matrix product have different types, {one.dtype} {list(one.shape)} and"
        f" {other.dtype} {list(other.shape)}; convert one of them, as with .to({one.dtype})"
    )


PRODUCTS = {func: checked(func, first) for func, first in FACTORS.items()}
"""By operator; in place of torch's fake kernels."""
