"""What a few lines cost on a GPU: `aotlens inspect examples/gpu_costs.py --gpu h100`, on any machine."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Layer(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.gelu(self.up(self.norm(x)))
        return x + functional.dropout(self.down(hidden), 0.1)


# aotlens: example f32[64, 65536]
def ranked(scores: Tensor) -> Tensor:
    """The sort is a library call, so `relu` and the division are kernels of their own."""
    return scores.relu().sort(-1).values / 2


# aotlens: example f32[1048576, 8]
def heights(points: Tensor) -> Tensor:
    """One column of eight: the memory moves all of them."""
    return points[:, 2].clamp(0)


def main() -> None:
    torch.manual_seed(0)
    layer = torch.compile(Layer())
    loss = layer(torch.randn(2048, 512)).square().mean()
    loss.backward()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
