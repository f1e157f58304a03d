"""Activation checkpointing around compiled blocks, the standard recipe for training large models."""
# corpus: mode=training steps=10

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, hidden)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Regressor(nn.Module):
    def __init__(self, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(FeedForward(width, 2 * width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)


def main():
    torch.manual_seed(0)
    model = Regressor()
    for index, layer in enumerate(model.layers):
        model.layers[index] = torch.compile(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, 64)
    targets = inputs[:, :8].sum(1, keepdim=True)
    print("ready: 3 checkpointed blocks")
    for step in range(10):
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
