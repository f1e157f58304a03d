"""A schedule counts its steps on the module while batch sizes change."""
# vary: x.shape[0]=6,4

import torch
from torch import nn


class Scheduled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.step = nn.Linear(8, 8), 0

    def forward(self, x):
        self.step += 1
        return self.linear(x) * min(1.0, self.step / 4)


compiled = torch.compile(Scheduled(), backend="aot_eager")
for size in (8, 8, 6, 4):
    compiled(torch.randn(size, 8)).sum().backward()
