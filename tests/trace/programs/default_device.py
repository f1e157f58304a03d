"""A training step of a program that sets a default device."""

import sys

import torch
from torch import nn

torch.set_default_device("cpu")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        return torch.nn.functional.gelu(self.linear(y)) * y


if __name__ == "__main__":
    torch.compile(Block(), backend=sys.argv[1])(torch.randn(4, 8)).sum().backward()
