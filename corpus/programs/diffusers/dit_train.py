"""Train a class-conditional DiT to predict noise, with labels dropped for classifier-free guidance."""
# corpus: mode=training needs=diffusers

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, DiTTransformer2DModel

NUM_CLASSES = 10


class ClassConditionalDiffusion(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = DiTTransformer2DModel(
            num_attention_heads=4,
            attention_head_dim=8,
            in_channels=4,
            out_channels=4,
            num_layers=2,
            norm_num_groups=4,
            sample_size=8,
            patch_size=2,
            num_embeds_ada_norm=NUM_CLASSES,
        )
        self.scheduler = DDPMScheduler(num_train_timesteps=200, beta_schedule="linear")

    def forward(self, latents, labels, noise, timesteps):
        noisy = self.scheduler.add_noise(latents, noise, timesteps)
        prediction = self.transformer(noisy, timestep=timesteps, class_labels=labels).sample
        return F.mse_loss(prediction, noise)


def main():
    torch.manual_seed(0)
    model = ClassConditionalDiffusion()
    # The table of labels has one more row, for "no label"; without random label dropping here.
    for module in model.modules():
        if hasattr(module, "dropout_prob"):
            module.dropout_prob = 0.0
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.99))
    print(f"DiT with {len(model.transformer.transformer_blocks)} blocks")
    templates = torch.randn(NUM_CLASSES, 4, 8, 8)
    for step in range(10):
        labels = torch.randint(0, NUM_CLASSES, (4,))
        latents = templates[labels] + 0.1 * torch.randn(4, 4, 8, 8)
        loss = compiled(latents, labels, torch.randn_like(latents), torch.randint(0, 200, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
