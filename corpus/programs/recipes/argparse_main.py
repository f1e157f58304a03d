"""A command-line training script: argparse, `if __name__ == "__main__"`, and --compile."""
# corpus: mode=training steps=10 args=--steps 10 --lr 0.02 --hidden 48 --compile

import argparse
import sys
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    steps: int
    lr: float
    hidden: int
    compile: bool
    optimizer: str


def parse_args(argv=None):
    parser = argparse.ArgumentParser(description="Fit a small network to a spiral.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    return Settings(**vars(parser.parse_args(argv)))


def spiral(points, classes):
    xs, ys = [], []
    for c in range(classes):
        t = torch.linspace(0, 1, points)
        angle = 4 * t + c * 2 * torch.pi / classes + 0.1 * torch.randn(points)
        xs.append(torch.stack([t * angle.sin(), t * angle.cos()], 1))
        ys.append(torch.full((points,), c))
    return torch.cat(xs), torch.cat(ys)


class MLP(nn.Module):
    def __init__(self, hidden, classes):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )

    def forward(self, x):
        return self.net(x)


def main():
    args = parse_args()
    torch.manual_seed(42)
    x, y = spiral(50, 3)
    model = MLP(args.hidden, 3)
    if args.compile:
        model = torch.compile(model)
    make = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[args.optimizer]
    optimizer = make(model.parameters(), lr=args.lr)
    print(args)
    for step in range(args.steps):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step:3d}/{args.steps} loss={loss.item():.4g}")
    return 0 if loss.isfinite() else 3


if __name__ == "__main__":
    sys.exit(main())
