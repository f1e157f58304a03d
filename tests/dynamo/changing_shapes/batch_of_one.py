"""Requests are served in batches of what has arrived: 1 now and then."""
# vary: batch=7,1,3,1

import torch
from torch import nn

model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).eval()
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    for size in (4, 7, 1, 3, 1):
        compiled(torch.randn(size, 16))
