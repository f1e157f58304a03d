"""ViT trained as an image classifier, with label smoothing and a moving average of its weights."""
# corpus: mode=training needs=transformers

import torch
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import ViTConfig, ViTForImageClassification


def images(draw: torch.Generator, count: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with one bright quadrant; the quadrant is the class."""
    labels = torch.randint(0, 4, (count,), generator=draw)
    pixels = torch.randn(count, 3, 32, 32, generator=draw)
    for image, label in zip(pixels, labels.tolist(), strict=True):
        top, left = 16 * (label // 2), 16 * (label % 2)
        image[:, top : top + 16, left : left + 16] += 1.0
    return pixels, labels


def main() -> None:
    torch.manual_seed(40)
    config = ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=4,
    )
    model = ViTForImageClassification(config).train()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    draw = torch.Generator().manual_seed(40)
    print("ViT on", config.image_size, "pixels")
    for step in range(10):
        pixels, labels = images(draw)
        loss = F.cross_entropy(compiled(pixel_values=pixels).logits, labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        averaged.update_parameters(model)
        distance = sum((a - b).norm() for a, b in zip(averaged.parameters(), model.parameters(), strict=True))
        print(f"step {step}: loss {loss.item():.4g}, distance to the average {distance.item():.4g}")


if __name__ == "__main__":
    main()
