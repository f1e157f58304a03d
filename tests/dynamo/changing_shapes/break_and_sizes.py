"""A print splits the function, and every part of it recompiles for the second size."""
# vary: x.shape[0]=5,6

import torch
from torch import nn


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        hidden = self.first(x).relu()
        print("hidden")
        return self.second(hidden)


compiled = torch.compile(Noisy(), backend="aot_eager")
for size in (4, 5, 6):
    compiled(torch.randn(size, 8))
