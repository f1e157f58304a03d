"""Swin with shifted windows and relative position biases, trained on images in channels-last memory."""
# corpus: mode=training needs=transformers

import torch
from transformers import SwinConfig, SwinForImageClassification

torch.manual_seed(41)
config = SwinConfig(
    image_size=32,
    patch_size=4,
    embed_dim=24,
    depths=[2, 2],
    num_heads=[2, 4],
    window_size=4,
    drop_path_rate=0.0,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=5,
)
model = SwinForImageClassification(config).to(memory_format=torch.channels_last).train()
classify = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=4)
print("stages:", config.depths, "windows of", config.window_size)

for step in range(8):
    labels = torch.arange(5)
    pixels = torch.randn(5, 3, 32, 32) + labels.view(5, 1, 1, 1)
    out = classify(pixel_values=pixels.contiguous(memory_format=torch.channels_last), labels=labels)
    out.loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {out.loss.item():.4g}, right {(out.logits.argmax(-1) == labels).sum().item()}")
