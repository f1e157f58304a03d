"""The measured models: the GPT of the examples at any depth, and a convolutional net."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from examples.train_gpt import GPT, Config

CONTEXT, WIDTH, BATCH, VOCABULARY = 128, 64, 2, 512
"""Small tensors: compilers depend on the graph's size, and the model's own step should add little."""


def gpt(layers: int) -> GPT:
    """Return a decoder in training mode; dropout is 0 so that every contender computes the same."""
    torch.manual_seed(0)
    model = GPT(Config(VOCABULARY, context=CONTEXT, layers=layers, width=WIDTH, dropout=0.0))
    # functorch.compile.aot_module rejects tied weights.
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())
    return model


def gpt_inputs() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class Bottleneck(nn.Module):
    """Three convolutions with normalisations, and a residual connection (He et al., 2015)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(width, inner, 1, bias=False)
        self.reduce_norm = nn.BatchNorm2d(inner)
        self.spatial = nn.Conv2d(inner, inner, 3, padding=1, bias=False)
        self.spatial_norm = nn.BatchNorm2d(inner)
        self.expand = nn.Conv2d(inner, width, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.reduce_norm(self.reduce(x)).relu()
        y = self.spatial_norm(self.spatial(y)).relu()
        return (x + self.expand_norm(self.expand(y))).relu()


class ConvNet(nn.Module):
    """A residual net with as many convolutions as ResNet-50, on narrow channels; returns its loss."""

    def __init__(self, blocks: int = 16, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(*(Bottleneck(width, width // 4) for _ in range(blocks)))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = self.stem_norm(self.stem(images)).relu()
        x = self.blocks(x).mean((2, 3))
        return nn.functional.cross_entropy(self.head(x), labels)


class ResidualBlock(nn.Module):
    """A bottleneck as in ResNet-50: it may halve the image and widen the channels."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        wide = 4 * inner
        self.conv1, self.norm1 = nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.conv3, self.norm3 = nn.Conv2d(inner, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if channels != wide:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, wide, 1, stride, bias=False), nn.BatchNorm2d(wide)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet50(nn.Module):
    """ResNet-50 (He et al., 2015) at full width, as in torchvision; returns its loss."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.norm1, self.relu = nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        blocks: list[nn.Module] = []
        channels = 64
        for inner, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(count):
                blocks.append(ResidualBlock(channels, inner, stride if number == 0 else 1))
                channels = 4 * inner
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = self.pool(self.relu(self.norm1(self.conv1(images))))
        x = self.blocks(x).mean((2, 3))
        return nn.functional.cross_entropy(self.head(x), labels)


def resnet50() -> ResNet50:
    torch.manual_seed(0)
    return ResNet50()


def resnet50_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3, 32, 32), torch.randint(10, (2,))


def conv_net() -> ConvNet:
    torch.manual_seed(0)
    return ConvNet()


def conv_net_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3, 16, 16), torch.randint(10, (2,))


@dataclass(frozen=True, slots=True)
class Model:
    """A model with inputs, and its name in the tables."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]


def gpt_model(layers: int) -> Model:
    return Model(f"GPT, {layers} layers", lambda: gpt(layers), gpt_inputs)


CONV_NET = Model("conv net, 49 convolutions", conv_net, conv_net_inputs)
RESNET_50 = Model("ResNet-50", resnet50, resnet50_inputs)
