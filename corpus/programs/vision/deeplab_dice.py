"""Train DeepLabV3 (atrous pyramid) with Dice and focal losses in channels_last."""
# corpus: mode=training needs=torchvision

import torch
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.mobilenetv2 import MobileNetV2
from torchvision.models.segmentation.deeplabv3 import DeepLabHead, DeepLabV3
from torchvision.ops import sigmoid_focal_loss

torch.manual_seed(0)


def dice_loss(logits, target):
    probability = logits.sigmoid()
    overlap = 2 * (probability * target).sum(dim=(2, 3))
    total = probability.sum(dim=(2, 3)) + target.sum(dim=(2, 3))
    return 1 - ((overlap + 1) / (total + 1)).mean()


trunk = MobileNetV2(
    inverted_residual_setting=[[1, 16, 1, 1], [4, 24, 1, 2], [4, 32, 1, 2]], width_mult=0.5
).features
backbone = IntermediateLayerGetter(trunk, return_layers={str(len(trunk) - 2): "out"})
head = DeepLabHead(16, num_classes=1, atrous_rates=(2, 4, 6))
head[0].project[3].p = 0.0
model = DeepLabV3(backbone, head).to(memory_format=torch.channels_last)
forward = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
print("atrous branches:", len(head[0].convs))

rows = torch.arange(48).view(1, 48, 1)
columns = torch.arange(48).view(1, 1, 48)
for step in range(8):
    centre = torch.randint(12, 36, (4, 2, 1, 1))
    radius = torch.randint(5, 11, (4, 1, 1))
    disc = ((rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2 < radius**2).float().unsqueeze(1)
    images = (disc + 0.2 * torch.randn(4, 3, 48, 48)).to(memory_format=torch.channels_last)
    logits = forward(images)["out"]
    loss = dice_loss(logits, disc) + sigmoid_focal_loss(logits, disc, reduction="mean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4g}")
