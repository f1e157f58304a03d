"""Train with torchao's low-bit optimizer state: AdamW with 8-bit moments behind a compiled model."""
# corpus: mode=training needs=torchao tolerance=1e-2

import torch
import torch.nn.functional as F
from torch import nn
from torchao.optim import AdamW8bit

torch.manual_seed(0)
model = nn.Sequential(
    nn.Embedding(100, 64),
    nn.Flatten(),
    nn.Linear(512, 128),
    nn.Mish(),
    nn.LayerNorm(128),
    nn.Linear(128, 100),
)
optimizer = AdamW8bit(model.parameters(), lr=2e-3, block_size=64)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)


@torch.compile
def loss_of(tokens, following):
    return F.cross_entropy(model(tokens), following, reduction="mean")


print("parameters:", sum(p.numel() for p in model.parameters()))
table = torch.randperm(100)
for step in range(8):
    tokens = torch.randint(0, 100, (16, 8))
    loss = loss_of(tokens, table[tokens[:, -1]])
    loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4g}")
