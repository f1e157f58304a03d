"""Fine-tune a text-conditioned UNet with v-prediction, Min-SNR weighting and bfloat16 autocast."""
# corpus: mode=training needs=diffusers tolerance=2e-2

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DConditionModel
from diffusers.training_utils import EMAModel, compute_snr


def build_unet():
    return UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=24,
        attention_head_dim=4,
        norm_num_groups=4,
    )


def loss_weights(scheduler, timesteps, gamma=5.0):
    """Min-SNR-gamma weights for v-prediction."""
    snr = compute_snr(scheduler, timesteps)
    return torch.minimum(snr, torch.full_like(snr, gamma)) / (snr + 1)


def main():
    torch.manual_seed(0)
    unet = build_unet()
    ema = EMAModel(unet.parameters(), decay=0.99)
    scheduler = DDPMScheduler(num_train_timesteps=1000, prediction_type="v_prediction")
    optimizer = torch.optim.AdamW(unet.parameters(), lr=2e-4, weight_decay=1e-2)
    train_unet = torch.compile(unet)
    print(f"conditional UNet, EMA decay {ema.decay}")

    for step in range(8):
        latents = torch.randn(2, 4, 8, 8) * 0.5
        text = torch.randn(2, 7, 24)
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, 1000, (2,))
        noisy = scheduler.add_noise(latents, noise, timesteps)
        target = scheduler.get_velocity(latents, noise, timesteps)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            prediction = train_unet(noisy, timesteps, encoder_hidden_states=text).sample
        loss = F.mse_loss(prediction.float(), target, reduction="none").mean(dim=(1, 2, 3))
        loss = (loss * loss_weights(scheduler, timesteps)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        ema.step(unet.parameters())
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
