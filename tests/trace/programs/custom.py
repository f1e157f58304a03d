"""A custom `autograd.Function` that saves its input and computes the rest in the backward."""

import sys
from typing import Any

import torch
from torch import Tensor, nn

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = Swish.apply(self.first(x))
        return self.second(hidden)


torch.manual_seed(0)
model = torch.compile(Net(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(8, 16)).square().sum().backward()
