"""SegFormer trained for semantic segmentation with an ignored label and a Dice term beside cross entropy."""
# corpus: mode=training needs=transformers

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import SegformerConfig, SegformerForSemanticSegmentation

CLASSES, IGNORED = 3, 255


def scene(count: int) -> tuple[Tensor, Tensor]:
    """A disc and a band on a noisy ground; the border is not labelled."""
    y, x = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    labels = torch.zeros(count, 64, 64, dtype=torch.long)
    for index in range(count):
        cy, cx, band = torch.randint(16, 48, (3,)).tolist()
        labels[index][(y - band).abs() < 5] = 1
        labels[index][(y - cy) ** 2 + (x - cx) ** 2 < 120] = 2
    pixels = torch.randn(count, 3, 64, 64) * 0.3 + F.one_hot(labels, 3).permute(0, 3, 1, 2)
    labels[:, :2] = labels[:, -2:] = IGNORED
    return pixels, labels


def dice(logits: Tensor, labels: Tensor) -> Tensor:
    known = (labels != IGNORED).unsqueeze(1)
    wanted = F.one_hot(labels.masked_fill(labels == IGNORED, 0), CLASSES).permute(0, 3, 1, 2) * known
    guess = logits.softmax(1) * known
    return 1 - 2 * (guess * wanted).sum((0, 2, 3)).div((guess + wanted).sum((0, 2, 3)) + 1).mean()


torch.manual_seed(44)
config = SegformerConfig(
    num_encoder_blocks=2,
    depths=[1, 1],
    sr_ratios=[4, 2],
    hidden_sizes=[16, 32],
    patch_sizes=[7, 3],
    strides=[4, 2],
    num_attention_heads=[1, 2],
    mlp_ratios=[2, 2],
    decoder_hidden_size=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    classifier_dropout_prob=0.0,
    drop_path_rate=0.0,
    num_labels=CLASSES,
)
model = SegformerForSemanticSegmentation(config).train()
segment = torch.compile(model)
loss_of = torch.compile(dice)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
print("SegFormer of", len(config.depths), "stages")
for step in range(8):
    pixels, labels = scene(2)
    logits = F.interpolate(segment(pixel_values=pixels).logits, size=(64, 64), mode="bilinear")
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORED) + loss_of(logits, labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4g}")
