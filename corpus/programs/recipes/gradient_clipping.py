"""Gradient clipping by norm and by value, compiled with the optimizer step in one function."""
# corpus: mode=training steps=10

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 48), nn.Softplus(), nn.Linear(48, 48), nn.Softplus(), nn.Linear(48, 2))
heads = {"mean": 0, "log_variance": 1}
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
forward = torch.compile(model)


@torch.compile
def clip_and_step():
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    torch.nn.utils.clip_grad_value_(model.parameters(), clip_value=0.1)
    optimizer.step()
    return norm


x = torch.randn(96, 12)
y = x[:, 0] * 2 + x[:, 1].abs() * torch.randn(96)
print("ready")
for step in range(10):
    prediction = forward(x)
    mean, log_variance = prediction[:, heads["mean"]], prediction[:, heads["log_variance"]]
    loss = 0.5 * (log_variance + (y - mean).square() / log_variance.exp()).mean()
    loss.backward()
    norm = clip_and_step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4g} norm {norm.item():.4g}")
