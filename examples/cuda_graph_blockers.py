"""What keeps CUDA graphs from recording a step; `aotlens inspect` tells it with `--gpu h100`."""

import torch
from torch import Tensor


# aotlens: example f32[64, 32] grad, f32[32, 32] grad, f32[32]
def step(x: Tensor, weight: Tensor, seen: Tensor) -> Tensor:
    hidden = torch.relu(x @ weight)
    seen.add_(1)
    scale = hidden.detach().sum().item()
    active = hidden[hidden > 0.5]
    return active.sum() * scale + (hidden * seen).sum()
