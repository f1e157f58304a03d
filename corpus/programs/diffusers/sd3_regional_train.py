"""Train an SD3 transformer by flow matching, with only its repeated blocks compiled."""
# corpus: mode=training needs=diffusers

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel
from diffusers.training_utils import compute_density_for_timestep_sampling, compute_loss_weighting_for_sd3

torch.manual_seed(0)

transformer = SD3Transformer2DModel(
    sample_size=8,
    patch_size=2,
    in_channels=4,
    num_layers=3,
    attention_head_dim=8,
    num_attention_heads=4,
    caption_projection_dim=32,
    joint_attention_dim=24,
    pooled_projection_dim=40,
    out_channels=4,
    pos_embed_max_size=8,
)
for block in transformer.transformer_blocks:
    block.compile()
scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
optimizer = torch.optim.AdamW(transformer.parameters(), lr=1e-4)
print(f"SD3 transformer with {len(transformer.transformer_blocks)} joint blocks")


def sigmas_for(timesteps):
    indices = [(scheduler.timesteps == t).nonzero().item() for t in timesteps]
    return scheduler.sigmas[indices].view(-1, 1, 1, 1)


for step in range(8):
    latents = torch.randn(2, 4, 8, 8)
    prompt, pooled = torch.randn(2, 5, 24), torch.randn(2, 40)
    noise = torch.randn_like(latents)
    u = compute_density_for_timestep_sampling("logit_normal", 2, logit_mean=0.0, logit_std=1.0)
    timesteps = scheduler.timesteps[(u * scheduler.config.num_train_timesteps).long()]
    sigmas = sigmas_for(timesteps)
    noisy = (1.0 - sigmas) * latents + sigmas * noise
    velocity = transformer(
        hidden_states=noisy,
        timestep=timesteps,
        encoder_hidden_states=prompt,
        pooled_projections=pooled,
        return_dict=False,
    )[0]
    weighting = compute_loss_weighting_for_sd3("sigma_sqrt", sigmas).clamp(max=10)
    loss = (weighting * (velocity - (noise - latents)) ** 2).flatten(1).mean(1).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(transformer.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4g}")
