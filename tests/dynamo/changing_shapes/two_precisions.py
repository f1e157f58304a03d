"""Checks in float64 between training in float32."""
# vary: x.dtype=float64,float32

import torch


@torch.compile(backend="aot_eager")
def loss(x, y):
    return ((x - y) ** 2).mean()


for size, dtype in ((8, torch.float32), (8, torch.float64), (12, torch.float32), (10, torch.float64)):
    loss(torch.randn(size, 4, dtype=dtype), torch.randn(size, 4, dtype=dtype))
