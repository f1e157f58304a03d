"""Checkpointed compiled blocks under bfloat16 autocast; recomputation runs under the same autocast."""
# corpus: mode=training steps=10 tolerance=1e-2

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class ConvBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(4, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        h = nn.functional.silu(self.norm(self.conv1(x)))
        return x + self.conv2(h)


class Net(nn.Module):
    def __init__(self, channels=16, blocks=2, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1, stride=2)
        self.blocks = nn.ModuleList(torch.compile(ConvBlock(channels)) for _ in range(blocks))
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x.mean((2, 3)))


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
images, labels = torch.randn(8, 3, 16, 16), torch.randint(0, 4, (8,))
print("ready")

for step in range(10):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(images)
        loss = nn.functional.cross_entropy(logits.float(), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3g} logits {logits.dtype}")
