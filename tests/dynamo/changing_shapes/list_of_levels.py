"""A detector gets feature maps of several levels as a list."""
# vary: levels[0].shape[2]=20

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 2, 1)

    def forward(self, levels):
        return torch.cat([self.conv(level).flatten(2) for level in levels], 2)


compiled = torch.compile(Head().eval(), backend="aot_eager")
with torch.no_grad():
    for size in (16, 20, 24):
        compiled([torch.randn(1, 4, size, size), torch.randn(1, 4, size // 2, size // 2)])
