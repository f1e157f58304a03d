"""Attention over a key-value cache that is written in place; the results are views of the cache.

Inference only, one token at a time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONTEXT = 32


class CachedAttention(nn.Module):
    """One attention layer that remembers the keys and values of earlier tokens."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(
        self, x: Tensor, position: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The layer's result for one new token, and what the cache now holds, by head."""
        batch, _, width = x.shape
        q, k, v = self.qkv(x).view(batch, 3, self.heads, 1, -1).unbind(1)
        keys.index_copy_(1, position, k.transpose(1, 2))
        values.index_copy_(1, position, v.transpose(1, 2))

        keys_by_head = keys.transpose(1, 2)
        values_by_head = values.transpose(1, 2)
        written = (torch.arange(CONTEXT) <= position).view(1, CONTEXT)
        mixed = F.scaled_dot_product_attention(q, keys_by_head, values_by_head, attn_mask=written)
        return self.proj(mixed.reshape(batch, 1, width)), keys_by_head, values_by_head


def main() -> None:
    torch.manual_seed(0)
    batch, width, heads = 2, 32, 4
    layer = CachedAttention(width, heads).eval()
    step = torch.compile(layer)
    keys = torch.zeros(batch, CONTEXT, heads, width // heads)
    values = torch.zeros_like(keys)

    with torch.no_grad():
        x = torch.randn(batch, 1, width)
        for position in range(8):
            x, keys_by_head, _ = step(x, torch.tensor([position]), keys, values)

    print(f"tokens in the cache: {keys.abs().sum((0, 2, 3)).count_nonzero().item()}")
    print(f"the result is a view of the cache: {keys_by_head.data_ptr() == keys.data_ptr()}")
    print(f"norm of the last token: {x.norm().item():.3f}")


if __name__ == "__main__":
    main()
