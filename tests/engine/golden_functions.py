"""Small functions whose module text and report are kept as golden files; their lines are part of the text."""

import torch
from torch import Tensor, nn


def running_total(x: Tensor, total: Tensor) -> Tensor:
    total.add_(x.detach())
    return (x * total).relu()


def two_views(x: Tensor) -> tuple[Tensor, Tensor]:
    doubled = x * 2
    return doubled.t(), doubled[0]


def updated_in_place(x: Tensor, scale: Tensor) -> dict[str, Tensor]:
    x.mul_(scale)
    return {"view": x.view(-1), "sum": x.exp().sum()}


def plain_and_nested(batch: dict[str, Tensor], factor: int) -> list[Tensor]:
    return [batch["left"] * factor, batch["right"].sum(0)]


class Normalised(nn.Module):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.lerp_(x.mean(0), 0.1)
        return (x - self.mean).tanh() * self.scale
