"""mode="max-autotune" for a feed-forward network: matrix products may get tuned kernels."""
# corpus: mode=inference steps=8

import torch
import torch.nn.functional as F
from torch import nn


class GatedMLP(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.w1 = nn.Linear(width, hidden)
        self.w2 = nn.Linear(width, hidden)
        self.w3 = nn.Linear(hidden, width)

    def forward(self, x):
        h = self.norm(x)
        return x + self.w3(F.gelu(self.w1(h)) * self.w2(h))


torch.manual_seed(0)
model = nn.Sequential(GatedMLP(64, 128), GatedMLP(64, 128), nn.Linear(64, 10)).eval()
tuned = torch.compile(model, mode="max-autotune")
batches = torch.randn(8, 32, 64)
print("ready")

with torch.no_grad():
    for batch in batches:
        probabilities = tuned(batch).softmax(-1)
        entropy = -(probabilities * probabilities.log()).sum(-1).mean()
        print(f"entropy {entropy.item():.4g} top {probabilities.amax(-1).mean().item():.4g}")
