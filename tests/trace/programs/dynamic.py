"""Sizes that change: the second call recompiles with a symbolic size, and an input is mutated."""

import sys

import torch
from torch import Tensor

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"


def pool(x: Tensor, total: Tensor) -> Tensor:
    total.add_(x.detach().sum(0))
    if x.shape[0] > 4:
        x = x * 2
    return torch.tanh(x).mean(0)


compiled = torch.compile(pool, backend=BACKEND)
total = torch.zeros(16)
for rows in (8, 12, 20):
    compiled(torch.randn(rows, 16, requires_grad=True), total).sum().backward()
