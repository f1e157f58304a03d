"""A checkpointed region between two linear layers."""

import sys

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.up, self.down = nn.Linear(32, 32), nn.Linear(32, 128), nn.Linear(128, 32)

    def feed_forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.up(x))
        return self.down(hidden.sin())

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return x + checkpoint(self.feed_forward, x, use_reentrant=False)


torch.manual_seed(0)
model = torch.compile(Net(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(16, 32)).sum().backward()
