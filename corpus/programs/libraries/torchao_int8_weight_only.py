"""Generate greedily from a small decoder whose linear layers have int8 weights from torchao."""
# corpus: mode=inference needs=torchao

import torch
import torch.nn.functional as F
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        hidden = self.norm_2(x)
        return x + self.down(F.silu(self.gate(hidden)) * self.up(hidden))


class Decoder(nn.Module):
    def __init__(self, vocabulary=64, width=64, heads=4, depth=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens)))


def size_bytes(model):
    return sum(p.numel() * p.element_size() for p in model.parameters())


@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = Decoder().eval()
    before = size_bytes(model)
    quantize_(model, Int8WeightOnlyConfig())
    compiled = torch.compile(model, dynamic=True)
    print(f"{before} bytes of float weights,", type(model.head.weight).__name__)
    tokens = torch.randint(0, 64, (2, 6))
    for step in range(10):
        logits = compiled(tokens)[:, -1]
        best = logits.max(dim=-1)
        tokens = torch.cat([tokens, best.indices[:, None]], dim=1)
        print(f"token {step}: {best.indices.tolist()}, logit {best.values.mean().item():.4g}")


if __name__ == "__main__":
    main()
