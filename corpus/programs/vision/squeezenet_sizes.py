"""Classify images of changing size and batch with SqueezeNet compiled once for dynamic shapes."""
# corpus: mode=inference needs=torchvision

import torch
from torchvision.models import squeezenet1_1

torch.manual_seed(0)
model = squeezenet1_1(num_classes=15, dropout=0.0).eval()
classify = torch.compile(model, dynamic=True)
shapes = [
    (1, 64, 64),
    (2, 64, 64),
    (2, 80, 64),
    (3, 96, 80),
    (4, 64, 96),
    (5, 72, 72),
    (2, 88, 104),
    (6, 64, 64),
]
print(f"{len(shapes)} shapes, {sum(p.numel() for p in model.parameters())} parameters")

generator = torch.Generator().manual_seed(4)
for batch, height, width in shapes:
    images = torch.rand(batch, 3, height, width, generator=generator)
    with torch.no_grad():
        scores = classify(images)
    print(f"{batch}x{height}x{width}: {scores.shape[0]} answers, mean {scores.mean().item():.4g}")
