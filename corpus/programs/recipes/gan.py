"""A GAN with two compiled networks, two optimizers and a frozen discriminator in the generator's step."""
# corpus: mode=training steps=10

import torch
import torch.nn.functional as F
from torch import nn


def generator(latent=8, width=32):
    return nn.Sequential(
        nn.Linear(latent, width * 4 * 4),
        nn.Unflatten(1, (width, 4, 4)),
        nn.ConvTranspose2d(width, 16, 4, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        nn.Tanh(),
    )


def discriminator(width=16):
    return nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(1, width, 4, stride=2, padding=1)),
        nn.LeakyReLU(0.2),
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(2 * width * 16, 1),
    )


def real_images(count):
    grid = torch.linspace(-1, 1, 16)
    centres = torch.rand(count, 2, 1, 1) - 0.5
    distance = (grid[:, None] - centres[:, :1]).square() + (grid - centres[:, 1:]).square()
    return 2 * torch.exp(-8 * distance) - 1


torch.manual_seed(0)
G, D = generator(), discriminator()
compiled_G, compiled_D = torch.compile(G), torch.compile(D)
optimizer_G = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
print("ready")

for step in range(10):
    real = real_images(16)
    noise = torch.randn(16, 8)

    D.requires_grad_(True)
    fake = compiled_G(noise)
    loss_D = F.softplus(compiled_D(fake.detach())).mean() + F.softplus(-compiled_D(real)).mean()
    optimizer_D.zero_grad()
    loss_D.backward()
    optimizer_D.step()

    D.requires_grad_(False)
    loss_G = F.softplus(-compiled_D(fake)).mean()
    optimizer_G.zero_grad()
    loss_G.backward()
    optimizer_G.step()
    print(f"step {step}: discriminator {loss_D.item():.3g} generator {loss_G.item():.3g}")
