"""How many entries are returned is a Python number that changes."""
# vary: k=3,4,7

import torch


@torch.compile(backend="aot_eager")
def search(queries, table, k):
    return (queries @ table.T).topk(k).indices


table = torch.randn(32, 8)
for k, count in ((2, 5), (3, 5), (4, 6), (7, 9)):
    search(torch.randn(count, 8), table, k)
