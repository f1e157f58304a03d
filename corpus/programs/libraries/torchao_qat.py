"""Train with fake int8 activations and int4 weights (torchao's QAT), then convert and evaluate."""
# corpus: mode=training needs=torchao tolerance=1e-2

import torch
import torch.nn.functional as F
from torch import nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.qat import QATConfig

torch.manual_seed(0)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 1)

    def forward(self, x):
        x = F.gelu(self.first(x))
        x = x + F.gelu(self.second(x))
        return self.out(x).squeeze(-1)


def target(x):
    return torch.sin(x[:, :4].sum(dim=1)) + 0.3 * x[:, 4]


def hidden_layers(module, name):
    return isinstance(module, nn.Linear) and name != "out"


config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
model = Regressor()
quantize_(model, QATConfig(config, step="prepare"), filter_fn=hidden_layers)
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
print("prepared:", type(model.first).__name__)

for step in range(12):
    x = torch.randn(32, 32)
    loss = F.huber_loss(compiled(x), target(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.3g}")

quantize_(model, QATConfig(config, step="convert"), filter_fn=hidden_layers)
x = torch.randn(64, 32)
with torch.no_grad():
    print(f"converted: loss {F.huber_loss(torch.compile(model.eval())(x), target(x)).item():.3g}")
