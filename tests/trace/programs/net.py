"""A small network with a buffer that is written, dropout, a graph break, a recompilation and inference.

TORCH_TRACE=logs python net.py BACKEND
"""

import sys

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.gelu(self.up(self.norm(x)))
        return x + self.down(y)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(16) for _ in range(2))
        self.register_buffer("count", torch.zeros(1))
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)  # type: ignore[operator]  # a tensor
        for block in self.blocks:
            x = block(x)
        x = functional.dropout(x, 0.1)
        return self.head(x), x.view(-1)


def broken(x: torch.Tensor, n: int) -> torch.Tensor:
    y = x.sin() * n
    print("hello", file=sys.stderr)  # noqa: T201 (Dynamo breaks the graph here)
    y = y.cos()
    return y + 1


def infer(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ x, -1).relu_()


if __name__ == "__main__":
    torch.manual_seed(0)
    backend = sys.argv[1]
    out, flat = torch.compile(Net(), backend=backend)(torch.randn(8, 16))
    (out.sum() + flat.sum()).backward()
    step = torch.compile(broken, backend=backend)
    step(torch.randn(4, requires_grad=True), 2).sum().backward()
    step(torch.randn(6, requires_grad=True), 3).sum().backward()
    torch.compile(infer, backend=backend)(torch.randn(4, 4))
