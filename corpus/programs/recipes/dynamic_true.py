"""torch.compile(dynamic=True): an image model at several resolutions without a compilation for each."""
# corpus: mode=inference steps=8

import torch
import torch.nn.functional as F
from torch import nn


class UpscaleNet(nn.Module):
    def __init__(self, channels: int = 12) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.PReLU(channels)) for _ in range(2)
        )
        self.tail = nn.Conv2d(channels, 3 * 4, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.head(image)
        for layer in self.body:
            x = x + layer(x)
        fine = F.pixel_shuffle(self.tail(x), 2)
        coarse = F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)
        return (fine + coarse).clamp(0, 1)


def main() -> None:
    torch.manual_seed(0)
    model = UpscaleNet().eval()
    upscale = torch.compile(model, dynamic=True)
    sizes = [(16, 16), (24, 16), (20, 28), (32, 32), (16, 40), (12, 12), (36, 20), (28, 28)]
    print(f"ready: {len(sizes)} images")
    for height, width in sizes:
        image = torch.rand(1, 3, height, width)
        with torch.inference_mode():
            result = upscale(image)
        print(f"{height}x{width} -> {tuple(result.shape[2:])} mean {result.mean().item():.4g}")


if __name__ == "__main__":
    main()
