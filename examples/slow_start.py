"""A training loop that compiles far more often than it needs to; `--fixed` runs it as it should be."""

import sys

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Counts its calls in a number, and looks at a value on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.step = 0

    def forward(self, x: Tensor) -> Tensor:
        self.step += 1
        hidden = torch.relu(self.linear(x))
        if hidden.mean() > 1:
            hidden = hidden / hidden.mean()
        return hidden.sum() / self.step


class FixedBlock(nn.Module):
    """The same with a buffer for the counter, and both sides of the branch computed."""

    step: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.register_buffer("step", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.step.add_(1)
        hidden = torch.relu(self.linear(x))
        hidden = torch.where(hidden.mean() > 1, hidden / hidden.mean(), hidden)
        return hidden.sum() / self.step


def main() -> None:
    torch.manual_seed(0)
    model = FixedBlock() if "--fixed" in sys.argv else Block()
    compiled = torch.compile(model, backend="eager")
    losses = [compiled(torch.randn(8, 64)).item() for _ in range(5)]
    print(f"last loss: {losses[-1]:.3f}")


main()
