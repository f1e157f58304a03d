"""Train a timm ResNet-D with mixup, soft targets and an exponential moving average of the weights."""
# corpus: mode=training needs=timm

import numpy as np
import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3

torch.manual_seed(0)
np.random.seed(0)  # mixup takes its random numbers from numpy
NUM_CLASSES = 12

model = timm.create_model(
    "resnet50d",
    pretrained=False,
    num_classes=NUM_CLASSES,
    layers=(1, 1, 1, 1),
    channels=(8, 16, 24, 32),
    stem_width=8,
)
mixup = Mixup(mixup_alpha=0.4, cutmix_alpha=0.0, label_smoothing=0.1, num_classes=NUM_CLASSES)
criterion = SoftTargetCrossEntropy()
optimizer = create_optimizer_v2(model, opt="lamb", lr=5e-3, weight_decay=0.02)
ema = ModelEmaV3(model, decay=0.9, use_warmup=True)
train_model = torch.compile(model)
eval_model = torch.compile(ema.module)
print(model.default_cfg["architecture"], sum(p.numel() for p in model.parameters()))

held_out = torch.randn(4, 3, 32, 32)
for step in range(8):
    images = torch.randn(4, 3, 32, 32)
    targets = torch.randint(0, NUM_CLASSES, (4,))
    images, targets = mixup(images, targets)
    loss = criterion(train_model(images), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model, step=step)
    with torch.no_grad():
        average = eval_model(held_out)
    print(f"step {step}: loss {loss.item():.4g}, averaged logits {average.std().item():.4g}")
