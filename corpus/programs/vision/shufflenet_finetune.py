"""Fine-tune the head of torchvision's ShuffleNet: frozen trunk, then one more stage unfrozen."""
# corpus: mode=training needs=torchvision

import torch
from torch import nn
from torchvision.models import ShuffleNetV2


def freeze_batch_norm(module):
    if isinstance(module, nn.BatchNorm2d):
        module.eval()


def main():
    torch.manual_seed(0)
    model = ShuffleNetV2(stages_repeats=[1, 2, 1], stages_out_channels=[8, 16, 32, 64, 64], num_classes=100)
    for parameter in model.parameters():
        parameter.requires_grad = False
    model.fc = nn.Linear(model.fc.in_features, 6)
    model.train()
    model.apply(freeze_batch_norm)
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.fc.parameters(), lr=1e-2)
    print("trainable at first:", sum(p.requires_grad for p in model.parameters()))

    for step in range(10):
        if step == 5:  # the graph with more gradients is another compilation
            for parameter in model.stage4.parameters():
                parameter.requires_grad = True
            optimizer.add_param_group({"params": list(model.stage4.parameters()), "lr": 1e-3})
        images, labels = torch.randn(8, 3, 64, 64), torch.randint(0, 6, (8,))
        loss = nn.functional.cross_entropy(compiled(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trained = sum(p.grad is not None for p in model.parameters())
        print(f"step {step}: loss {loss.item():.4g}, {trained} gradients")


if __name__ == "__main__":
    main()
