"""The function that docs/architecture/ follows through every stage: a write through a view."""

from torch import Tensor


# aotlens: example f32[2, 3], f32[3] grad
def scale_first_row(x: Tensor, weight: Tensor) -> Tensor:
    """Scale the first row of `x` in place; the caller sees the write, and `weight` gets a gradient."""
    row = x[0]
    row.mul_(weight)
    return x.exp()
