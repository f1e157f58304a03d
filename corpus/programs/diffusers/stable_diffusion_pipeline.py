"""Run a Stable Diffusion pipeline with compiled UNet and VAE decoder and classifier-free guidance."""
# corpus: mode=inference needs=diffusers

import torch
from diffusers import AutoencoderKL, EulerDiscreteScheduler, StableDiffusionPipeline, UNet2DConditionModel


def build_pipeline():
    unet = UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        block_out_channels=(16, 32),
        latent_channels=4,
        norm_num_groups=8,
        sample_size=16,
    )
    pipeline = StableDiffusionPipeline(
        vae=vae,
        text_encoder=None,
        tokenizer=None,
        unet=unet,
        scheduler=EulerDiscreteScheduler(num_train_timesteps=1000),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def report(pipeline, step, timestep, tensors):
    latents = tensors["latents"]
    print(f"step {step}: timestep {float(timestep):.4g}, std {latents.std().item():.4g}")
    return tensors


torch.manual_seed(0)
pipe = build_pipeline()
pipe.unet = torch.compile(pipe.unet)
pipe.vae.decode = torch.compile(pipe.vae.decode)
prompt = torch.randn(1, 6, 32)
negative = torch.zeros(1, 6, 32)
print(
    "pipeline ready:", ", ".join(sorted(name for name, part in pipe.components.items() if part is not None))
)

image = pipe(
    prompt_embeds=prompt,
    negative_prompt_embeds=negative,
    guidance_scale=4.0,
    num_inference_steps=8,
    height=16,
    width=16,
    generator=torch.Generator().manual_seed(3),
    output_type="pt",
    callback_on_step_end=report,
).images
print(f"image {tuple(image.shape)}, mean {image.mean().item():.4g}")
