"""Quantize the linear layers of an MLP to groups of int4 weights with torchao and compare with bfloat16."""
# corpus: mode=inference needs=torchao tolerance=2e-2

import copy

import torch
from torch import nn
from torchao.quantization import IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quant_api import _is_linear

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(64, 128), nn.SiLU(), nn.LayerNorm(128), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 10)
)
model = model.to(torch.bfloat16).eval()
quantized = copy.deepcopy(model)
quantize_(
    quantized,
    IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    filter_fn=lambda module, name: _is_linear(module, name) and module.out_features > 10,
)
reference, compiled = torch.compile(model), torch.compile(quantized)
print(
    "quantized layers:",
    sum(type(m).__name__ == "Linear" and "Intx" in type(m.weight).__name__ for m in quantized),
)

with torch.inference_mode():
    for step in range(8):
        batch = torch.randn(16, 64, dtype=torch.bfloat16)
        exact, approximate = reference(batch).float(), compiled(batch).float()
        noise = (exact - approximate).norm() / exact.norm()
        agreement = (exact.argmax(1) == approximate.argmax(1)).float().mean()
        print(f"batch {step}: relative error {noise.item():.3g}, agreement {agreement.item():.1f}")
