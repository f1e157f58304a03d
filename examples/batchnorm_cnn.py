"""Train a small CNN to tell discs from squares; batch norm updates its buffers in every forward."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZE = 16


class ConvBlock(nn.Sequential):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(
            nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )


class ShapeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(ConvBlock(1, 8), ConvBlock(8, 16))
        self.classifier = nn.Linear(16, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images).mean((2, 3)))


def sample_batch(count: int) -> tuple[Tensor, Tensor]:
    """Noisy images of a disc (label 0) or a square (label 1) at a random place."""
    labels = torch.randint(2, (count,))
    centre = torch.randint(5, SIZE - 5, (count, 2, 1, 1)).float()
    axis = torch.arange(SIZE, dtype=torch.float32)
    down = (axis.view(1, SIZE, 1) - centre[:, 0]).abs()
    across = (axis.view(1, 1, SIZE) - centre[:, 1]).abs()
    disc = down.square() + across.square() <= 16
    square = torch.maximum(down, across) <= 3
    shape = torch.where(labels.view(-1, 1, 1) == 0, disc, square).float()
    return (shape + 0.3 * torch.randn_like(shape)).unsqueeze(1), labels


def main() -> None:
    torch.manual_seed(0)
    model = ShapeNet()
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, 121):
        images, labels = sample_batch(32)
        loss = F.cross_entropy(compiled(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:3}: loss {loss.item():.1f}")

    norm = "features.0.1"
    print(f"batches counted by batch norm: {model.get_buffer(f'{norm}.num_batches_tracked').item()}")
    print(f"its running variance left 1.0: {bool((model.get_buffer(f'{norm}.running_var') < 0.9).all())}")

    model.eval()
    images, labels = sample_batch(200)
    with torch.no_grad():
        right = (compiled(images).argmax(1) == labels).float().mean().item()
    print(f"accuracy on new images is over 75%: {right > 0.75}")


if __name__ == "__main__":
    main()
