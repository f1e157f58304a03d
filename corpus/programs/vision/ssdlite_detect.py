"""Detect objects with torchvision's SSD and an SSDlite head, non-maximum suppression included."""
# corpus: mode=inference needs=torchvision

from functools import partial

import torch
from torch import nn
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.ssd import SSD
from torchvision.models.detection.ssdlite import SSDLiteHead
from torchvision.models.mobilenetv2 import MobileNetV2


class Features(nn.Module):
    """Two feature maps of a MobileNetV2."""

    def __init__(self):
        super().__init__()
        layers = MobileNetV2(inverted_residual_setting=[[1, 8, 1, 2], [4, 16, 1, 2], [4, 24, 1, 2]]).features
        self.fine, self.coarse = layers[:3], layers[3:4]

    def forward(self, images):
        fine = self.fine(images)
        return {"0": fine, "1": self.coarse(fine)}


def build():
    backbone = Features()
    boxes = DefaultBoxGenerator([[2], [2, 3]], min_ratio=0.2, max_ratio=0.9)
    head = SSDLiteHead([16, 24], boxes.num_anchors_per_location(), 5, partial(nn.BatchNorm2d, eps=0.001))
    return SSD(
        backbone,
        boxes,
        size=(64, 64),
        num_classes=5,
        head=head,
        score_thresh=0.25,
        nms_thresh=0.4,
        topk_candidates=40,
        detections_per_img=10,
    )


torch.manual_seed(0)
detector = build()
for module in detector.modules():  # running statistics of the random weights
    if isinstance(module, nn.BatchNorm2d):
        module.momentum = None
    elif isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight)
with torch.no_grad():
    detector.head(list(detector.backbone(torch.randn(4, 3, 64, 64)).values()))
detector.eval()
detect = torch.compile(detector)
print("default boxes per cell:", detector.anchor_generator.num_anchors_per_location())

generator = torch.Generator().manual_seed(3)
for index in range(8):
    frame = torch.rand(3, 96, 128, generator=generator)
    with torch.no_grad():
        detections = detect([frame])[0]
    scores, boxes = detections["scores"], detections["boxes"]
    print(
        f"frame {index}: {len(scores)} boxes, score {scores.sum().item():.3g}, area {boxes.sum().item():.3g}"
    )
