"""One unbatched row between batches: another number of dimensions."""
# vary: x.shape[0]=6

import torch


@torch.compile(backend="aot_eager")
def scaled(x, weights):
    return (x * weights).sum(-1)


weights = torch.randn(8)
scaled(torch.randn(4, 8), weights)
scaled(torch.randn(6, 8), weights)
scaled(torch.randn(8), weights)
