"""Train a small timm EfficientNet with TensorFlow-style RMSprop and gradient accumulation."""
# corpus: mode=training needs=timm

import torch
import torch.nn as nn
from timm.models._efficientnet_builder import decode_arch_def
from timm.models.efficientnet import EfficientNet
from timm.optim import RMSpropTF

torch.manual_seed(0)

blocks = decode_arch_def(
    [["ds_r1_k3_s1_e1_c8_se0.25"], ["ir_r2_k3_s2_e4_c16_se0.25"], ["ir_r1_k5_s2_e4_c24_se0.25"]]
)
model = EfficientNet(
    blocks,
    num_classes=6,
    num_features=48,
    stem_size=8,
    act_layer=nn.SiLU,
    norm_layer=nn.BatchNorm2d,
    drop_rate=0.0,
)
model.train()
optimizer = RMSpropTF(model.parameters(), lr=1e-3, alpha=0.9, momentum=0.9, eps=1e-3)


@torch.compile
def micro_batch_loss(images, labels, parts):
    return nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1) / parts


accumulate = 2
print(f"EfficientNet with {len(model.blocks)} stages, {accumulate} micro-batches per step")
for step in range(8):
    total = 0.0
    for _ in range(accumulate):
        images = torch.randn(4, 3, 32, 32)
        labels = torch.randint(0, 6, (4,))
        loss = micro_batch_loss(images, labels, accumulate)
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {total:.4g}")
