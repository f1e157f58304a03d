"""Train a ControlNet beside a frozen UNet, both compiled."""
# corpus: mode=training needs=diffusers

import torch
import torch.nn.functional as F
from diffusers import ControlNetModel, DDPMScheduler, UNet2DConditionModel

torch.manual_seed(0)
unet = UNet2DConditionModel(
    sample_size=8,
    layers_per_block=1,
    block_out_channels=(16, 32),
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    cross_attention_dim=16,
    attention_head_dim=8,
    norm_num_groups=4,
)
controlnet = ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(8, 16))
with torch.no_grad():  # the zero convolutions would hide the ControlNet in a few steps
    for block in controlnet.controlnet_down_blocks:
        torch.nn.init.normal_(block.weight, std=0.1)
unet.requires_grad_(False)
controlnet.train()

compiled_unet = torch.compile(unet)
compiled_controlnet = torch.compile(controlnet)
scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="scaled_linear")
optimizer = torch.optim.AdamW(controlnet.parameters(), lr=5e-4)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.2, total_iters=4)
print("trainable:", sum(p.numel() for p in controlnet.parameters() if p.requires_grad))

for step in range(8):
    latents = torch.randn(2, 4, 8, 8)
    hint = (torch.rand(2, 3, 16, 16) > 0.5).float()
    text = torch.randn(2, 4, 16)
    noise = torch.randn_like(latents)
    timesteps = torch.randint(0, 1000, (2,))
    noisy = scheduler.add_noise(latents, noise, timesteps)
    down, middle = compiled_controlnet(
        noisy, timesteps, encoder_hidden_states=text, controlnet_cond=hint, return_dict=False
    )
    predicted = compiled_unet(
        noisy,
        timesteps,
        encoder_hidden_states=text,
        down_block_additional_residuals=down,
        mid_block_additional_residual=middle,
    ).sample
    loss = F.mse_loss(predicted, noise)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(controlnet.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4g}, gradient norm {norm.item():.4g}")
