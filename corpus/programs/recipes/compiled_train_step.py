"""The whole training step in one compiled function: forward, backward, scheduler value and optimizer."""
# corpus: mode=training steps=10

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 48), nn.Hardswish(), nn.Linear(48, 48), nn.Hardswish(), nn.Linear(48, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)


@torch.compile
def train_step(x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.compile
@torch.no_grad()
def evaluate(x, y):
    return F.l1_loss(model(x), y)


inputs = torch.randn(4, 32, 16)
targets = inputs.pow(2).mean(-1, keepdim=True)
print("ready")
for step in range(10):
    loss = train_step(inputs[step % 4], targets[step % 4])
    error = evaluate(inputs[0], targets[0])
    print(f"step {step}: loss {loss.item():.4g} error {error.item():.4g}")
