"""Graph breaks at a print and at a number, and a recompilation for each value of an attribute."""

import sys

import torch
from torch import Tensor, nn

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.scale = 1.5

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        print("activations", file=sys.stderr)  # noqa: T201 (Dynamo breaks the graph here)
        x = torch.relu(x) * self.scale
        if x.sum() > 0:
            x = x.sin()
        return x.cos()


def views(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs that alias an input, an intermediate value, and another output."""
    y = x.sin()
    return x.t(), y.view(-1), y


torch.manual_seed(0)
net = Net()
model = torch.compile(net, backend=BACKEND)
x = torch.randn(4, 8)
for net.scale in (1.5, 2.5):
    model(x).sum().backward()
torch.compile(views, backend=BACKEND)(torch.randn(4, 8, requires_grad=True))
