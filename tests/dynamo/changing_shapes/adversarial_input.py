"""Every second step needs the gradient of the input."""
# vary: input.requires_grad=True

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
compiled = torch.compile(model, backend="aot_eager")
for size, wants_gradient in ((4, False), (4, True), (6, False), (6, True)):
    compiled(torch.randn(size, 8, requires_grad=wants_gradient)).sum().backward()
