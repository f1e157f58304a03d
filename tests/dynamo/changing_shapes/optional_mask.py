"""A mask is passed for padded batches alone."""
# vary: mask=None

import torch


@torch.compile(backend="aot_eager")
def attend(query, key, mask=None):
    scores = query @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(mask, -1e9)
    return scores.softmax(-1) @ key


for size, padded in ((6, True), (6, False), (9, True), (7, False)):
    mask = torch.zeros(size, size, dtype=torch.bool) if padded else None
    attend(torch.randn(2, size, 8), torch.randn(2, size, 8), mask)
