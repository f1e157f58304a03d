"""Train a small Faster R-CNN from torchvision on two images of different content per step."""
# corpus: mode=training needs=torchvision

import torch
from torch import nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign


def small_backbone():
    layers = []
    for inputs, outputs in ((3, 8), (8, 16), (16, 16)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.GroupNorm(4, outputs), nn.ReLU()]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = 16
    return backbone


def build():
    return FasterRCNN(
        small_backbone(),
        num_classes=3,
        min_size=64,
        max_size=64,
        rpn_anchor_generator=AnchorGenerator(sizes=((16, 32),), aspect_ratios=((0.5, 1.0, 2.0),)),
        box_roi_pool=MultiScaleRoIAlign(featmap_names=["0"], output_size=5, sampling_ratio=2),
        rpn_pre_nms_top_n_train=60,
        rpn_post_nms_top_n_train=20,
        rpn_batch_size_per_image=32,
        box_batch_size_per_image=16,
    )


def scene(generator):
    image = torch.rand(3, 64, 64, generator=generator) * 0.2
    corner = torch.randint(0, 30, (2, 2), generator=generator).float()
    boxes = torch.cat([corner, corner + torch.randint(14, 34, (2, 2), generator=generator)], dim=1)
    labels = torch.tensor([1, 2])
    for box, label in zip(boxes.int().tolist(), labels.tolist(), strict=True):
        image[label, box[1] : box[3], box[0] : box[2]] += 0.7
    return image, {"boxes": boxes, "labels": labels}


def main():
    torch.manual_seed(0)
    model = build()
    model.train()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    print("anchors per place:", model.rpn.anchor_generator.num_anchors_per_location())
    for step in range(8):
        images, targets = zip(*(scene(generator) for _ in range(2)), strict=True)
        losses = compiled(list(images), list(targets))
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
