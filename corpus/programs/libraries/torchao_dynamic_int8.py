"""Quantize a vision transformer's MLPs to int8 activations and weights with torchao, at run time."""
# corpus: mode=inference needs=torchao,torchvision tolerance=1e-2

import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
from torchvision.models import VisionTransformer


def is_mlp(module, name):
    return isinstance(module, torch.nn.Linear) and ".mlp." in name


torch.manual_seed(0)
model = VisionTransformer(
    image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10
).eval()
torch.nn.init.normal_(model.heads.head.weight, std=0.1)
quantize_(model, Int8DynamicActivationInt8WeightConfig(), filter_fn=is_mlp)
classify = torch.compile(model)
print("quantized:", sum(is_mlp(module, name) for name, module in model.named_modules()))

generator = torch.Generator().manual_seed(1)
with torch.no_grad():
    for step in range(8):
        logits = classify(torch.rand(4, 3, 32, 32, generator=generator))
        print(f"batch {step}: largest {logits.max().item():.3g}, spread {logits.std().item():.3g}")
