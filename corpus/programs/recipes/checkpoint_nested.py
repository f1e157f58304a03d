"""Nested checkpoints: a stage is recomputed as a whole, and its compiled layers again one by one."""
# corpus: mode=training steps=8

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Stage(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


class Model(nn.Module):
    def __init__(self, width=32, stages=2, layers=2):
        super().__init__()
        self.stages = nn.ModuleList(Stage(width, layers) for _ in range(stages))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=False)
        return self.head(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Model()
    for stage in model.stages:
        for layer in stage.layers:
            layer.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x = torch.randn(32, 32)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    print("ready")
    for step in range(8):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: {loss.item():.4g}")
