"""Low-rank adapters with parametrize on a frozen compiled network, then merged for inference."""
# corpus: mode=training steps=10

import math

import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
from torch import nn


class LoRA(nn.Module):
    def __init__(self, rows, columns, rank=4, alpha=8):
        super().__init__()
        self.a = nn.Parameter(torch.randn(rank, columns) / math.sqrt(columns))
        self.b = nn.Parameter(torch.zeros(rows, rank))
        self.scale = alpha / rank

    def forward(self, weight):
        return weight + self.scale * (self.b @ self.a)


def add_lora(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, nn.Linear):
            parametrize.register_parametrization(module, "weight", LoRA(*module.weight.shape))


def merge_lora(model):
    for module in model.modules():
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 4))
    add_lora(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=2e-2)
    compiled = torch.compile(model)
    x = torch.randn(64, 12)
    y = x[:, :4].abs().argmax(1)
    print(f"trainable parameters: {sum(p.numel() for p in trainable)}")
    for step in range(9):
        loss = F.cross_entropy(compiled(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")
    merge_lora(model)
    with torch.no_grad():
        merged = torch.compile(model)(x)
    print(f"merged: loss {F.cross_entropy(merged, y).item():.4g}")


if __name__ == "__main__":
    main()
