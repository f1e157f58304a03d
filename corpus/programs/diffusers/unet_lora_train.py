"""Fine-tune a UNet with LoRA adapters from peft, then merge them and sample one prediction."""
# corpus: mode=training needs=diffusers,peft

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DConditionModel
from diffusers.training_utils import cast_training_params
from peft import LoraConfig


def main():
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(16, 16),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
        norm_num_groups=4,
        only_cross_attention=False,
    )
    unet.requires_grad_(False)
    unet.add_adapter(
        LoraConfig(
            r=4,
            lora_alpha=8,
            init_lora_weights="gaussian",
            target_modules=["to_k", "to_q", "to_v", "to_out.0"],
        )
    )
    cast_training_params(unet, dtype=torch.float32)
    trainable = [p for p in unet.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=2e-3)
    scheduler = DDPMScheduler(num_train_timesteps=100)
    compiled = torch.compile(unet)
    print(f"{len(trainable)} adapter tensors of {sum(1 for _ in unet.parameters())}")

    for step in range(8):
        latents, text = torch.randn(2, 4, 8, 8), torch.randn(2, 5, 16)
        noise = torch.randn_like(latents) + 0.1 * latents
        timesteps = torch.randint(0, 100, (2,))
        noisy = scheduler.add_noise(latents, noise, timesteps)
        loss = F.mse_loss(compiled(noisy, timesteps, text).sample, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")

    unet.fuse_lora(lora_scale=0.5)
    with torch.no_grad():
        merged = compiled(torch.ones(1, 4, 8, 8), torch.tensor([10]), torch.ones(1, 5, 16)).sample
    print(f"merged: {merged.abs().mean().item():.4g}")


if __name__ == "__main__":
    main()
