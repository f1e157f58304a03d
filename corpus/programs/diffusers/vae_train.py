"""Train an AutoencoderKL with reconstruction, KL and total-variation losses."""
# corpus: mode=training needs=diffusers

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL


class VaeLoss(torch.nn.Module):
    """Encode, take a sample by given noise, decode, and weigh the losses."""

    def __init__(self, vae, kl_weight):
        super().__init__()
        self.vae = vae
        self.kl_weight = kl_weight

    def forward(self, images, noise):
        posterior = self.vae.encode(images).latent_dist
        latents = posterior.mean + posterior.std * noise
        decoded = self.vae.decode(latents).sample
        reconstruction = F.smooth_l1_loss(decoded, images)
        kl = posterior.kl().mean()
        variation = (decoded[..., 1:] - decoded[..., :-1]).abs().mean()
        return reconstruction + self.kl_weight * kl + 0.01 * variation, kl


def main():
    torch.manual_seed(0)
    vae = AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        block_out_channels=(8, 16),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
    )
    objective = torch.compile(VaeLoss(vae, kl_weight=1e-4))
    optimizer = torch.optim.RAdam(vae.parameters(), lr=1e-3)
    print("VAE with", sum(p.numel() for p in vae.parameters()), "parameters")
    axis = torch.linspace(-3, 3, 16)
    for step in range(10):
        phase = torch.rand(4, 3, 1, 1) * 6
        images = torch.sin(axis[:, None] + axis[None, :] * torch.rand(4, 3, 1, 1) + phase)
        loss, kl = objective(images, torch.randn(4, 4, 8, 8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}, kl {kl.item():.4g}")


if __name__ == "__main__":
    main()
