"""A small convolutional net: batch norm mutates its running statistics."""

import sys

import torch
from torch import Tensor, nn

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = nn.functional.relu(self.norm1(self.conv1(images)))
        x = nn.functional.max_pool2d(x, 2)
        x = nn.functional.silu(self.norm2(self.conv2(x)))
        return self.head(x.mean((2, 3)))


torch.manual_seed(0)
model = torch.compile(Net(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(4, 3, 16, 16)).square().mean().backward()
