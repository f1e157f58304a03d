"""Train torchvision's DenseNet with its memory-efficient (checkpointed) dense layers."""
# corpus: mode=training needs=torchvision

import torch
from torchvision.models import DenseNet

torch.manual_seed(0)
model = DenseNet(
    growth_rate=4,
    block_config=(2, 2),
    num_init_features=8,
    bn_size=2,
    drop_rate=0.0,
    num_classes=7,
    memory_efficient=True,
)
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.8, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[4, 6], gamma=0.3)
print(
    "dense layers:", sum("denselayer" in name and name.count(".") == 2 for name, _ in model.named_modules())
)

for step in range(8):
    images = torch.rand(6, 3, 48, 48)
    labels = (images.mean(dim=(1, 2, 3)) * 1000).long() % 7
    logits = compiled(images)
    loss = torch.nn.functional.nll_loss(logits.log_softmax(dim=1), labels)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    scheduler.step()
    accuracy = (logits.argmax(1) == labels).float().mean()
    print(f"step {step}: loss {loss.item():.4g}, accuracy {accuracy.item():.2f}")
