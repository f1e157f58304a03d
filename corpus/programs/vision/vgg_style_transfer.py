"""Optimise the pixels of an image against features of a frozen VGG with batch norm (style transfer)."""
# corpus: mode=training needs=torchvision

import torch
import torch.nn.functional as F
from torchvision.models import vgg11_bn


def gram(features):
    batch, channels, height, width = features.shape
    flat = features.view(batch, channels, height * width)
    return flat @ flat.transpose(1, 2) / (height * width)


class Perceptual(torch.nn.Module):
    """Activations after the named layers of a frozen trunk."""

    def __init__(self, trunk, taps):
        super().__init__()
        self.trunk, self.taps = trunk[: max(taps) + 1], taps

    def forward(self, image):
        activations = []
        for index, layer in enumerate(self.trunk):
            image = layer(image)
            if index in self.taps:
                activations.append(image)
        return activations


def main():
    torch.manual_seed(0)
    trunk = vgg11_bn(init_weights=True).features.eval().requires_grad_(False)
    for module in trunk:
        if isinstance(module, torch.nn.ReLU):
            module.inplace = False
    perceptual = Perceptual(trunk, taps=(2, 6, 10))
    content = torch.rand(1, 3, 32, 32)
    style = F.interpolate(torch.rand(1, 3, 4, 4), scale_factor=8) ** 2
    with torch.no_grad():
        content_target = perceptual(content)[-1]
        style_targets = [gram(features) for features in perceptual(style)]

    @torch.compile
    def loss_of(image):
        features = perceptual(image.clamp(0, 1))
        style_loss = sum(
            F.mse_loss(gram(f), target) for f, target in zip(features, style_targets, strict=True)
        )
        return 1e3 * F.mse_loss(features[-1], content_target) + 1e2 * style_loss

    image = torch.rand_like(content).requires_grad_()
    optimizer = torch.optim.LBFGS([image], lr=0.5, max_iter=2, history_size=5)
    print(f"{len(perceptual.trunk)} layers, optimising {image.numel()} pixels")
    for step in range(8):

        def closure():
            optimizer.zero_grad()
            loss = loss_of(image)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
