"""flex_attention with block masks: causal, sliding window and packed documents, in inference."""
# corpus: mode=inference steps=9

import torch
from torch import nn
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

flex_attention = torch.compile(flex_attention, dynamic=False)
LENGTH = 256


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv):
    return q - kv <= 64


def documents(ids):
    def same_document(b, h, q, kv):
        return ids[q] == ids[kv]

    return same_document


class Attention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, block_mask):
        b, t, w = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(x).chunk(3, dim=-1))
        attended = flex_attention(q, k, v, block_mask=block_mask)
        return self.out(attended.transpose(1, 2).reshape(b, t, w))


def main():
    torch.manual_seed(0)
    layers = nn.ModuleList(Attention() for _ in range(2)).eval()
    ids = torch.repeat_interleave(torch.arange(4), torch.tensor([40, 100, 76, 40]))
    masks = {
        "causal": causal,
        "sliding window": and_masks(causal, window),
        "documents": and_masks(causal, documents(ids)),
    }
    x = torch.randn(2, LENGTH, 64)
    print("ready")
    with torch.no_grad():
        for round in range(3):
            for name, mask in masks.items():
                block_mask = create_block_mask(mask, None, None, LENGTH, LENGTH, device="cpu")
                h = x + round
                for layer in layers:
                    h = h + layer(h, block_mask)
                print(f"{name}: {h.abs().mean().item():.4g}, {block_mask.sparsity():.1f} % empty")


if __name__ == "__main__":
    main()
