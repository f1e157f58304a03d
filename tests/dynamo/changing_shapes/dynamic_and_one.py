"""`dynamic=True`, and now and then a size of one."""
# vary: x.shape[0]=6,1,9

import torch


@torch.compile(backend="aot_eager", dynamic=True)
def scores(x, weights):
    return torch.softmax(x @ weights, -1)


for size in (5, 6, 1, 9):
    scores(torch.randn(size, 8), torch.randn(8, 8))
