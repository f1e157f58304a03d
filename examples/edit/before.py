"""A layer before an edit; in `after.py` it is edited: see `aotlens diff before.py after.py`."""

import torch
from torch import Tensor


# aotlens: example f32[256, 128] grad, f32[128, 128] grad
def layer(x: Tensor, weight: Tensor) -> Tensor:
    hidden = torch.relu(x @ weight)
    return (x + hidden * 0.5).sum()
