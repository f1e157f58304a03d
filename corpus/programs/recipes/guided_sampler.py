"""A sampler that walks from noise to data: the time step is a number on the module, progress is printed."""
# corpus: mode=inference steps=12

import torch
import torch.nn.functional as F
from torch import nn


class Sampler(nn.Module):
    def __init__(self, features=16, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features + 1, width), nn.SiLU(), nn.Linear(width, features))
        self.time = 0

    def forward(self, x):
        level = x.new_ones(x.shape[0], 1) * self.time
        direction = self.body(torch.cat([x, level / 12], 1))
        x = x - direction / (1 + self.time)
        print("largest value", x.abs().max())
        return F.layer_norm(x, x.shape[1:])


def main():
    torch.manual_seed(0)
    sampler = Sampler().eval()
    compiled = torch.compile(sampler)
    x = torch.randn(32, 16)
    print("ready")
    with torch.no_grad():
        for time in reversed(range(12)):
            sampler.time = time
            x = compiled(x)
            print(f"time {time}: mean {x.mean().item():.3g} of {x.abs().mean().item():.4g}")


if __name__ == "__main__":
    main()
