"""Mixed precision on a CPU: float16 autocast and a GradScaler around a compiled model."""
# corpus: mode=training steps=10 tolerance=1e-2

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(20, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 3)
        )

    def forward(self, x):
        return self.layers(x)


torch.manual_seed(0)
model = Net()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=4)
x = torch.randn(64, 20)
y = x.view(64, 4, 5).amax(-1).argmax(-1) % 3
print("ready")

for step in range(10):
    optimizer.zero_grad(set_to_none=True)
    with torch.amp.autocast("cpu", dtype=torch.float16):
        logits = compiled(x)
        loss = nn.functional.cross_entropy(logits, y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step}: loss {loss.item():.3g} norm {norm.item():.2g} scale {scaler.get_scale():.0f}")
