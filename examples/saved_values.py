"""What two layers keep for the backward, and what it would cost not to keep it."""

import torch
import torch.nn.functional as F
from torch import Tensor


def layer(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    hidden = F.layer_norm(x, x.shape[-1:]) @ up
    active = F.gelu(hidden) * hidden.sigmoid()
    return x + F.dropout(active, 0.1) @ down


# aotlens: example f32[256, 128] grad, f32[128, 512] grad, f32[512, 128] grad
def two_layers(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return layer(layer(x, up, down), up, down)


if __name__ == "__main__":
    torch.manual_seed(0)
    sizes = (256, 128), (128, 512), (512, 128)
    x, up, down = (torch.randn(size, requires_grad=True) for size in sizes)
    print(f"result: {tuple(two_layers(x, up, down).shape)}")
