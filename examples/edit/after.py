"""The layer of `before.py` after an edit."""

import torch
from torch import Tensor


# aotlens: example f32[256, 128] grad, f32[128, 128] grad
def layer(x: Tensor, weight: Tensor) -> Tensor:
    """Scales, and normalises what it adds."""
    # ReLU keeps a mask; softplus needs its whole argument
    hidden = torch.nn.functional.softplus(x @ weight)
    hidden = hidden / hidden.norm()
    return (x + hidden * 0.25).sum()
