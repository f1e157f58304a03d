"""The last batch of a training epoch has fewer rows."""
# vary: batch=8,5,8,8,5

import torch
from torch import nn
from torch.nn import functional as F

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows, labels = torch.randn(21, 16), torch.randint(0, 4, (21,))
for _ in range(2):
    for start in range(0, 21, 8):
        loss = F.cross_entropy(compiled(rows[start : start + 8]), labels[start : start + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
