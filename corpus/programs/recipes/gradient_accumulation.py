"""Gradient accumulation: four compiled micro-batches, the last one smaller, for each optimizer step."""
# corpus: mode=training steps=8

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.stem = nn.Linear(16, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.stem(x)
        for norm, block in zip(self.norms, self.blocks):
            x = x + F.relu(block(norm(x)))
        return self.head(x)


def main():
    torch.manual_seed(0)
    accumulate, micro_batch = 4, 16
    model = Net()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    x, y = torch.randn(60, 16), torch.randint(0, 5, (60,))
    print("ready")
    for step in range(8):
        total = 0.0
        order = torch.randperm(60)
        for part in order.split(micro_batch):
            # Weighted by its size, the sum is the gradient of the whole batch.
            loss = F.cross_entropy(compiled(x[part]), y[part]) * len(part) / len(order)
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        print(f"step {step}: loss {total:.4g} lr {schedule.get_last_lr()[0]:.3g}")
    assert len(order.split(micro_batch)) == accumulate


if __name__ == "__main__":
    main()
