"""Each epoch ends with an evaluation in larger batches, without gradients."""
# vary: eval

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 2))
compiled = torch.compile(model, backend="aot_eager")
for _ in range(2):
    model.train()
    for _ in range(3):
        compiled(torch.randn(6, 8)).sum().backward()
    model.eval()
    with torch.no_grad():
        for size in (12, 5):
            compiled(torch.randn(size, 8))
