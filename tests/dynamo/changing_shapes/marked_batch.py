"""The batch is marked as dynamic; the length was forgotten."""
# vary: x.shape[1]=10,6

import torch


@torch.compile(backend="aot_eager")
def normalised(x):
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)


for rows, length in ((4, 8), (5, 8), (6, 10), (7, 6)):
    x = torch.randn(rows, length)
    torch._dynamo.mark_dynamic(x, 0)
    normalised(x)
