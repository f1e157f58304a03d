"""Classify video clips with torchvision's Swin3D, frame windows of changing length."""
# corpus: mode=inference needs=torchvision

import torch
from torchvision.models.video import SwinTransformer3d

torch.manual_seed(0)
model = SwinTransformer3d(
    patch_size=[2, 4, 4],
    embed_dim=16,
    depths=[2, 1],
    num_heads=[2, 4],
    window_size=[4, 4, 4],
    stochastic_depth_prob=0.0,
    num_classes=11,
)
model.eval()
torch.nn.init.normal_(model.head.weight, std=0.3)
classify = torch.compile(model)
print("Swin3D with", sum(p.numel() for p in model.parameters()), "parameters")

generator = torch.Generator().manual_seed(8)
stream = torch.rand(1, 3, 32, 32, 32, generator=generator)
with torch.no_grad():
    for index, (start, frames) in enumerate(
        [(0, 8), (4, 8), (8, 8), (0, 12), (4, 12), (16, 12), (0, 16), (16, 8)]
    ):
        clip = stream[:, :, start : start + frames]
        logits = classify(clip)
        print(f"clip {index}: frames {start} to {start + frames}, top {logits.max().item():.4g}")
