"""Knowledge distillation: a compiled student learns a frozen teacher's soft labels and features."""
# corpus: mode=training steps=10

import torch
import torch.nn.functional as F
from torch import nn


class ConvNet(nn.Module):
    def __init__(self, width, depth, classes=6):
        super().__init__()
        layers = [nn.Conv2d(3, width, 3, stride=2, padding=1), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        features = self.features(x)
        return self.head(features.mean((2, 3))), features


class Distiller(nn.Module):
    def __init__(self, student, teacher, temperature=3.0):
        super().__init__()
        self.student, self.teacher = student, teacher.requires_grad_(False).eval()
        self.project = nn.Conv2d(8, 16, 1)
        self.temperature = temperature

    def forward(self, x, labels):
        with torch.no_grad():
            soft, guide = self.teacher(x)
        logits, features = self.student(x)
        t = self.temperature
        kl = F.kl_div(
            (logits / t).log_softmax(-1), (soft / t).log_softmax(-1), log_target=True, reduction="batchmean"
        )
        hint = F.mse_loss(F.normalize(self.project(features), dim=1), F.normalize(guide, dim=1))
        return F.cross_entropy(logits, labels), t * t * kl, hint


def main():
    torch.manual_seed(0)
    distiller = Distiller(ConvNet(8, 1), ConvNet(16, 2))
    compiled = torch.compile(distiller)
    optimizer = torch.optim.Adam([p for p in distiller.parameters() if p.requires_grad], lr=3e-3)
    x, labels = torch.randn(16, 3, 16, 16), torch.randint(0, 6, (16,))
    print("ready")
    for step in range(10):
        hard, soft, hint = compiled(x, labels)
        loss = 0.5 * hard + 0.4 * soft + 0.1 * hint
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: hard {hard.item():.4g} soft {soft.item():.4g} hint {hint.item():.4g}")


if __name__ == "__main__":
    main()
