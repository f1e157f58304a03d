"""Train torchvision's anchor-free FCOS detector through its own compile() method."""
# corpus: mode=training needs=torchvision

import torch
from torch import nn
from torchvision.models.detection import FCOS
from torchvision.models.detection.anchor_utils import AnchorGenerator


class Pyramid(nn.Module):
    """A backbone with two feature maps."""

    out_channels = 32

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 32, 7, stride=4, padding=3), nn.BatchNorm2d(32), nn.Hardswish()
        )
        self.body = nn.Sequential(
            nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.Hardswish()
        )
        self.down = nn.Conv2d(32, 32, 3, stride=2, padding=1)

    def forward(self, images):
        fine = self.body(self.stem(images))
        return {"fine": fine, "coarse": self.down(fine)}


torch.manual_seed(0)
anchors = AnchorGenerator(sizes=((8,), (16,)), aspect_ratios=((1.0,),) * 2)
model = FCOS(Pyramid(), num_classes=3, anchor_generator=anchors, min_size=64, max_size=80)
model.compile()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)
print("FCOS on", ", ".join(model.backbone(torch.zeros(1, 3, 64, 64))))

for step in range(8):
    count = 1 + step % 3  # images may have any number of objects
    corner = torch.randint(0, 32, (count, 2)).float()
    boxes = torch.cat([corner, corner + torch.randint(12, 32, (count, 2))], dim=1)
    targets = [{"boxes": boxes, "labels": torch.randint(0, 3, (count,))}]
    losses = model([torch.rand(3, 64, 64)], targets)
    loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {count} objects, loss {loss.item():.4g}")
