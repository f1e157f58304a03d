"""Denoise packed latents with a Flux transformer whose repeated blocks are compiled with fullgraph."""
# corpus: mode=inference needs=diffusers tolerance=2e-2

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel


def image_ids(height, width):
    ids = torch.zeros(height, width, 3)
    ids[..., 1] += torch.arange(height)[:, None]
    ids[..., 2] += torch.arange(width)[None, :]
    return ids.reshape(height * width, 3)


@torch.inference_mode()
def denoise(transformer, scheduler, steps):
    height = width = 4
    generator = torch.Generator().manual_seed(11)
    latents = torch.randn(1, height * width, 16, generator=generator).to(torch.bfloat16)
    prompt = torch.randn(1, 6, 32, generator=generator).to(torch.bfloat16)
    pooled = torch.randn(1, 24, generator=generator).to(torch.bfloat16)
    scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=0.7)
    for timestep in scheduler.timesteps:
        velocity = transformer(
            hidden_states=latents,
            timestep=timestep.expand(1).to(latents.dtype) / 1000,
            guidance=torch.full([1], 3.5),
            pooled_projections=pooled,
            encoder_hidden_states=prompt,
            txt_ids=torch.zeros(6, 3),
            img_ids=image_ids(height, width),
            return_dict=False,
        )[0]
        latents = scheduler.step(velocity, timestep, latents, return_dict=False)[0]
        yield float(timestep), latents


def main():
    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=2,
        num_single_layers=3,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=24,
        guidance_embeds=True,
        axes_dims_rope=(4, 4, 8),
    )
    transformer = transformer.to(torch.bfloat16).eval()
    transformer.compile_repeated_blocks(fullgraph=True)
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True)
    print("Flux transformer ready,", transformer.dtype)
    for timestep, latents in denoise(transformer, scheduler, steps=8):
        print(f"t={timestep:.4g}: norm {latents.float().norm().item():.3g}")


if __name__ == "__main__":
    main()
