"""Small inputs take another path."""
# vary: x.shape[0]=10,40,50,12

import torch


@torch.compile(backend="aot_eager")
def pooled(x):
    if x.shape[0] > 16:
        return x.reshape(-1, 2, x.shape[1]).mean(1)
    return x * 2


for size in (8, 10, 40, 50, 12):
    pooled(torch.randn(size, 4))
