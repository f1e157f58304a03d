"""Sample images from an unconditional UNet with a complete DDIM denoising loop."""
# corpus: mode=inference needs=diffusers

import torch
from diffusers import DDIMScheduler, UNet2DModel

torch.manual_seed(0)

unet = UNet2DModel(
    sample_size=16,
    in_channels=1,
    out_channels=1,
    layers_per_block=2,
    block_out_channels=(16, 32, 32),
    down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    norm_num_groups=8,
    attention_head_dim=16,
    resnet_time_scale_shift="scale_shift",
).eval()
unet = torch.compile(unet)

scheduler = DDIMScheduler(num_train_timesteps=1000, beta_schedule="squaredcos_cap_v2", clip_sample=True)
scheduler.set_timesteps(12)
generator = torch.Generator().manual_seed(7)
sample = torch.randn(2, 1, 16, 16, generator=generator) * scheduler.init_noise_sigma
print(f"sampling in {len(scheduler.timesteps)} steps from {tuple(sample.shape)} noise")

with torch.no_grad():
    for timestep in scheduler.timesteps:
        model_input = scheduler.scale_model_input(sample, timestep)
        noise = unet(model_input, timestep).sample
        sample = scheduler.step(noise, timestep, sample, eta=0.5, generator=generator).prev_sample
        print(f"t={int(timestep):4d}: mean {sample.abs().mean().item():.4g}")
