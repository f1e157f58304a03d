"""Encode and decode images of several sizes with a compiled AutoencoderKL in channels_last."""
# corpus: mode=inference needs=diffusers

import torch
from diffusers import AutoencoderKL
from diffusers.image_processor import VaeImageProcessor

torch.manual_seed(0)
vae = AutoencoderKL(
    down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
    up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
    block_out_channels=(16, 16),
    layers_per_block=1,
    latent_channels=4,
    norm_num_groups=8,
    scaling_factor=0.18,
)
vae.eval().to(memory_format=torch.channels_last)
vae.encoder = torch.compile(vae.encoder)
vae.decoder = torch.compile(vae.decoder, dynamic=True)
processor = VaeImageProcessor(vae_scale_factor=2)
print("latents scaled by", vae.config.scaling_factor)

generator = torch.Generator().manual_seed(5)
with torch.no_grad():
    for size in (16, 16, 24, 24, 32, 16, 24, 32):
        pixels = torch.rand(1, 3, size, size, generator=generator)
        images = processor.preprocess(pixels).to(memory_format=torch.channels_last)
        latents = vae.encode(images).latent_dist.sample(generator) * vae.config.scaling_factor
        decoded = vae.decode(latents / vae.config.scaling_factor, return_dict=False)[0]
        restored = processor.postprocess(decoded, output_type="pt")
        print(f"{size}x{size}: latents {latents.std().item():.4g}, restored {restored.mean().item():.4g}")
