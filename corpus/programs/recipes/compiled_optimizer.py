"""A compiled optimizer step: the whole of Adam's update, with a learning rate in a tensor, as one graph."""
# corpus: mode=training steps=12

import torch
from torch import nn

torch.manual_seed(0)

model = nn.Sequential(
    nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)
)
optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01), weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.1, total_iters=12)


@torch.compile(fullgraph=False)
def step_optimizer():
    optimizer.step()
    scheduler.step()


inputs = torch.randn(128, 32)
labels = (inputs[:, :16].sum(1) > 0).long() + 2 * (inputs[:, 16:].sum(1) > 0).long()
print("ready")

for step in range(12):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    step_optimizer()
    optimizer.zero_grad()
    accuracy = (model(inputs).argmax(1) == labels).float().mean()
    print(f"step {step}: loss {loss.item():.4g} accuracy {accuracy.item():.3f}")
