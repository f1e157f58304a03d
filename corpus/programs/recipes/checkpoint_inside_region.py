"""Activation checkpointing inside a compiled model: the whole forward is one region, blocks recompute."""
# corpus: mode=training steps=10

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


class Encoder(nn.Module):
    def __init__(self, width=64, layers=3, classes=5, checkpointing=True):
        super().__init__()
        self.checkpointing = checkpointing
        self.inputs = nn.Linear(16, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.inputs(x)
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x.mean(dim=1))


def main():
    torch.manual_seed(0)
    model = Encoder()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(16, 12, 16)
    y = torch.randint(0, 5, (16,))
    print(f"ready, {len(model.blocks)} blocks")

    model.train()
    for step in range(9):
        loss = nn.functional.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")

    model.eval()
    with torch.no_grad():
        accuracy = (compiled(x).argmax(-1) == y).float().mean()
    print(f"accuracy {accuracy.item():.4g}")


if __name__ == "__main__":
    main()
