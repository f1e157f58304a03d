"""Distil a frozen ResNet teacher into torchvision's MobileNetV3 student."""
# corpus: mode=training needs=torchvision

from functools import partial

import torch
import torch.nn.functional as F
from torchvision.models import mobilenet_v3_small
from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3
from torchvision.models.resnet import BasicBlock, ResNet


def build_student(classes):
    block = partial(InvertedResidualConfig, width_mult=1.0)
    setting = [
        block(16, 3, 16, 16, True, "RE", 2, 1),
        block(16, 3, 48, 24, False, "RE", 2, 1),
        block(24, 5, 64, 24, True, "HS", 1, 1),
    ]
    return MobileNetV3(setting, last_channel=64, num_classes=classes, dropout=0.0)


class Distiller(torch.nn.Module):
    def __init__(self, student, teacher, temperature, alpha):
        super().__init__()
        self.student, self.teacher = student, teacher.eval().requires_grad_(False)
        self.temperature, self.alpha = temperature, alpha

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, images, labels):
        with torch.no_grad():
            soft = F.softmax(self.teacher(images) / self.temperature, dim=1)
        logits = self.student(images)
        distilled = F.kl_div(F.log_softmax(logits / self.temperature, dim=1), soft, reduction="batchmean")
        hard = F.cross_entropy(logits, labels)
        return self.alpha * distilled * self.temperature**2 + (1 - self.alpha) * hard


def main():
    torch.manual_seed(0)
    reference = sum(p.numel() for p in mobilenet_v3_small(num_classes=10).parameters())
    student = build_student(10)
    distiller = Distiller(
        student, ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10), temperature=4.0, alpha=0.7
    )
    distiller.train()
    compiled = torch.compile(distiller)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    print(f"student has {sum(p.numel() for p in student.parameters()) / reference:.3f} of mobilenet_v3_small")
    for step in range(8):
        images, labels = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
        loss = compiled(images, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
