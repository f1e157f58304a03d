"""Train torchvision's RetinaNet with only the backbone with its feature pyramid compiled."""
# corpus: mode=training needs=torchvision

import torch
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

torch.manual_seed(0)
trunk = ResNet(BasicBlock, [1, 1, 1, 1])
backbone = BackboneWithFPN(
    trunk,
    return_layers={"layer3": "0", "layer4": "1"},
    in_channels_list=[256, 512],
    out_channels=16,
    extra_blocks=LastLevelP6P7(16, 16),
)
anchors = AnchorGenerator(sizes=((16,), (32,), (48,), (64,)), aspect_ratios=((1.0, 2.0),) * 4)
model = RetinaNet(backbone, num_classes=4, anchor_generator=anchors, min_size=64, max_size=64)
model.backbone = torch.compile(model.backbone)
model.head = torch.compile(model.head)
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=3e-4)
print("pyramid levels:", len(anchors.sizes))

for step in range(8):
    images, targets = [], []
    for _ in range(2):
        left, top = torch.randint(0, 24, (2,)).tolist()
        size = int(torch.randint(16, 40, ()))
        label = int(torch.randint(0, 4, ()))
        image = 0.1 * torch.randn(3, 64, 64)
        image[label % 3, top : top + size, left : left + size] += 1.0
        images.append(image)
        boxes = torch.tensor([[left, top, left + size, top + size]], dtype=torch.float32)
        targets.append({"boxes": boxes, "labels": torch.tensor([label])})
    losses = model(images, targets)
    loss = losses["classification"] + losses["bbox_regression"]
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4g}")
