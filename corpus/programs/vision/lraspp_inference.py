"""Segment frames with torchvision's LR-ASPP over MobileNetV3 and report the share of each class."""
# corpus: mode=inference needs=torchvision

import torch
from torchvision.models.segmentation import lraspp_mobilenet_v3_large
from torchvision.transforms import v2

torch.manual_seed(0)
model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
for module in model.modules():  # running statistics of the random weights
    if isinstance(module, torch.nn.BatchNorm2d):
        module.momentum = None
with torch.no_grad():
    for _ in range(2):
        model(torch.rand(4, 3, 64, 64))
model.eval()
normalize = v2.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


@torch.compile
def segment(frames):
    scores = model(normalize(frames))["out"]
    classes = scores.argmax(dim=1)
    return torch.nn.functional.one_hot(classes, 4).float().mean(dim=(1, 2)), scores


print("parameters:", sum(p.numel() for p in model.parameters()))
generator = torch.Generator().manual_seed(6)
with torch.no_grad():
    for index in range(8):
        frames = torch.rand(1, 3, 64, 64, generator=generator)
        share, scores = segment(frames)
        print(f"frame {index}: largest class {share.max().item():.3f}, spread {scores.std().item():.4g}")
