"""Train torchvision's vision transformer with stochastic weight averaging, evaluating the average."""
# corpus: mode=training needs=torchvision

import torch
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torchvision.models import VisionTransformer


def batches(count, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        labels = torch.randint(0, 4, (8,), generator=generator)
        images = torch.randn(8, 3, 32, 32, generator=generator) * 0.3 + labels.view(-1, 1, 1, 1)
        yield images, labels


torch.manual_seed(0)
model = VisionTransformer(
    image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=4
)
torch.nn.init.normal_(model.heads.head.weight, std=0.02)  # torchvision starts with zeros
averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
swa_scheduler = SWALR(optimizer, swa_lr=1e-3, anneal_epochs=4)
print("ViT with", len(model.encoder.layers), "layers")

for step, (images, labels) in enumerate(batches(10, seed=1)):
    model.train()
    loss = torch.nn.functional.cross_entropy(compiled(images), labels)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step >= 3:
        averaged.update_parameters(model)
        swa_scheduler.step()
    model.eval()
    with torch.no_grad():
        held_out, expected = next(batches(1, seed=100 + step))
        validation = torch.nn.functional.cross_entropy(compiled(held_out), expected)
    print(f"step {step}: loss {loss.item():.4g}, validation {validation.item():.4g}")
update_bn(batches(1, seed=9), averaged)
