"""Decoding with keys and values that grow by one token a step."""
# vary: keys.shape[2]=7,8,9,10

import torch
from torch.nn import functional as F


@torch.compile(backend="aot_eager")
def attend(query, keys, values):
    return F.scaled_dot_product_attention(query, keys, values)


keys = values = torch.randn(1, 2, 6, 8)
for _ in range(5):
    attend(torch.randn(1, 2, 1, 8), keys, values)
    keys = torch.cat([keys, torch.randn(1, 2, 1, 8)], 2)
    values = torch.cat([values, torch.randn(1, 2, 1, 8)], 2)
