"""Classify images with torchvision's MaxViT, compiled under inference mode."""
# corpus: mode=inference needs=torchvision

import torch
from torchvision.models import MaxVit
from torchvision.transforms import v2

torch.manual_seed(0)
model = MaxVit(
    input_size=(64, 64),
    stem_channels=8,
    partition_size=2,
    block_channels=[8, 16],
    block_layers=[1, 1],
    head_dim=4,
    stochastic_depth_prob=0.0,
    num_classes=20,
)
for module in model.modules():  # running statistics of the random weights
    if isinstance(module, torch.nn.BatchNorm2d):
        module.momentum = None
with torch.no_grad():
    for _ in range(3):
        model(torch.rand(4, 3, 64, 64))
model.eval()
classify = torch.compile(model)
preprocess = v2.Compose(
    [
        v2.Resize(72, antialias=True),
        v2.CenterCrop(64),
        v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)
print("MaxViT blocks:", len(model.blocks))

generator = torch.Generator().manual_seed(2)
for index in range(8):
    photos = preprocess(torch.rand(2, 3, 80, 100, generator=generator))
    with torch.inference_mode():
        probabilities = classify(photos).softmax(dim=-1)
    top = probabilities.topk(3)
    print(f"batch {index}: top classes {top.indices[0].tolist()}, probability {top.values[0, 0].item():.4g}")
