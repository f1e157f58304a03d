"""Train a timm ConvNeXt under bfloat16 autocast with layer-wise learning-rate decay."""
# corpus: mode=training needs=timm tolerance=3e-2

import timm
import torch
import torch.nn.functional as F
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler


def train(model, optimizer, scheduler, batches):
    model.train()
    for step, (images, labels) in enumerate(batches):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(images)
            loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step_update(step + 1)
        yield loss.detach()


def main():
    torch.manual_seed(0)
    model = timm.create_model(
        "convnext_atto", num_classes=8, depths=(1, 1, 2, 1), dims=(16, 24, 32, 48), drop_path_rate=0.0
    )
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.75)
    scheduler = CosineLRScheduler(optimizer, t_initial=10, warmup_t=2, warmup_lr_init=1e-5, t_in_epochs=False)
    compiled = torch.compile(model)
    batches = [(torch.randn(4, 3, 64, 64), torch.randint(0, 8, (4,))) for _ in range(8)]
    print(f"{len(optimizer.param_groups)} parameter groups")
    for step, loss in enumerate(train(compiled, optimizer, scheduler, batches)):
        print(f"step {step}: loss {loss.item():.3g}")


if __name__ == "__main__":
    main()
