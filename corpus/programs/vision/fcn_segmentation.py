"""Train an FCN with auxiliary head on torchvision's dilated ResNet, ignoring unlabelled pixels."""
# corpus: mode=training needs=torchvision

import torch
from torch import nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.models.segmentation.fcn import FCN, FCNHead

CLASSES, IGNORED = 5, 255


def build():
    backbone = ResNet(
        Bottleneck, [1, 1, 1, 1], width_per_group=16, replace_stride_with_dilation=[False, True, True]
    )
    backbone = IntermediateLayerGetter(backbone, return_layers={"layer4": "out", "layer3": "aux"})
    head, auxiliary = FCNHead(2048, CLASSES), FCNHead(1024, CLASSES)
    for part in (head, auxiliary):
        part[3].p = 0.0
    return FCN(backbone, head, auxiliary)


def criterion(outputs, masks):
    losses = {
        name: nn.functional.cross_entropy(x, masks, ignore_index=IGNORED) for name, x in outputs.items()
    }
    return losses["out"] + 0.5 * losses["aux"]


def main():
    torch.manual_seed(0)
    model = build()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(
        [{"params": model.backbone.parameters(), "lr": 0.001}, {"params": model.classifier.parameters()}],
        lr=0.01,
        momentum=0.9,
    )
    poly = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=8, power=0.9)
    print("heads:", sum(isinstance(module, FCNHead) for module in model.modules()))
    for step in range(8):
        masks = torch.randint(0, CLASSES, (2, 4, 4)).repeat_interleave(8, 1).repeat_interleave(8, 2)
        images = masks[:, None] / CLASSES + 0.1 * torch.randn(2, 3, 32, 32)
        masks[:, :2] = IGNORED
        loss = criterion(compiled(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        poly.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
