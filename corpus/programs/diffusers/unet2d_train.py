"""Train an unconditional diffusion UNet with DDPM noise, warmup and gradient clipping."""
# corpus: mode=training needs=diffusers

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup


def make_batches(count, batch_size, size):
    """Blurred noise, so that there is something to learn."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        images = torch.rand(batch_size, 3, size, size, generator=generator)
        yield F.avg_pool2d(images, 3, stride=1, padding=1) * 2 - 1


def main():
    torch.manual_seed(0)
    model = UNet2DModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=8,
    )
    scheduler = DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    steps = 10
    lr_scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=3, num_training_steps=steps)
    compiled = torch.compile(model)
    print(f"UNet2DModel with {sum(p.numel() for p in model.parameters())} parameters")

    for step, clean in enumerate(make_batches(steps, batch_size=4, size=16)):
        noise = torch.randn(clean.shape)
        timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (clean.shape[0],))
        noisy = scheduler.add_noise(clean, noise, timesteps)
        predicted = compiled(noisy, timesteps, return_dict=False)[0]
        loss = F.mse_loss(predicted, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
