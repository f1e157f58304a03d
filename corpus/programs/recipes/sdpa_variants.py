"""scaled_dot_product_attention in its variants: causal, masks, grouped heads, scale, chosen kernels."""
# corpus: mode=training steps=10

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class Attention(nn.Module):
    def __init__(self, kind, width=32, heads=4, groups=4):
        super().__init__()
        self.kind, self.heads, self.groups = kind, heads, groups
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * groups * (width // heads))
        self.out = nn.Linear(width, width)

    def forward(self, x, padding):
        b, t, w = x.shape
        q = self.q(x).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = self.kv(x).view(b, t, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
        if self.kind == "causal":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.kind == "padding":
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=padding[:, None, None, :])
        elif self.kind == "bias":
            distance = (torch.arange(t)[:, None] - torch.arange(t)).abs()
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=-0.1 * distance.to(q.dtype), scale=0.5)
        else:
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return x + self.out(y.transpose(1, 2).reshape(b, t, w))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        kinds = {"causal": 4, "padding": 4, "bias": 4, "grouped": 2}
        self.layers = nn.ModuleList(Attention(kind, groups=groups) for kind, groups in kinds.items())
        self.head = nn.Linear(32, 1)

    def forward(self, x, padding):
        for layer in self.layers:
            x = layer(x, padding)
        return self.head(x).squeeze(-1)


torch.manual_seed(0)
model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(4, 20, 32)
padding = torch.arange(20) < torch.tensor([20, 13, 17, 9])[:, None]
y = x[..., :5].mean(-1)
print("ready")
for step in range(8):
    loss = ((compiled(x, padding) - y).square() * padding).sum() / padding.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4g}")
with torch.no_grad():
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel([backend, SDPBackend.MATH]):
            print(f"{backend.name}: {compiled(x, padding).square().mean().item():.4g}")
