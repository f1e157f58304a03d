"""A small model whose report shows every kind of row; the sample report points into this file."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """A gated feed-forward block that counts its calls and decays a cache."""

    steps: Tensor

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.steps += 1
        cache.mul_(0.9)
        hidden = functional.gelu(self.up(x))
        gated = hidden * hidden.sigmoid()
        parts = {"größe 🙂": hidden.view(-1), "out": x + self.down(gated)}
        return parts["out"], parts["größe 🙂"], cache[0]


# aotlens: example f32[32, 16], f32[16, 10]
def score(x: Tensor, head: Tensor) -> Tensor:
    """Class probabilities."""
    logits = x @ head
    return logits.softmax(-1)
