"""Train torchvision's ResNet in channels_last with label smoothing and Nesterov momentum."""
# corpus: mode=training needs=torchvision

import argparse

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet


def synthetic_batch(generator, batch_size, classes):
    labels = torch.randint(0, classes, (batch_size,), generator=generator)
    images = torch.randn(batch_size, 3, 32, 32, generator=generator)
    images += labels.view(-1, 1, 1, 1) / classes
    return images.contiguous(memory_format=torch.channels_last), labels


def parameter_groups(model, weight_decay):
    """No weight decay for biases and normalisation layers."""
    decayed, others = [], []
    for parameter in model.parameters():
        (decayed if parameter.ndim > 1 else others).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10, zero_init_residual=True)
    model = model.to(memory_format=torch.channels_last)
    compiled = torch.compile(model)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(parameter_groups(model, 1e-4), lr=options.lr, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options.lr, total_steps=options.steps)
    generator = torch.Generator().manual_seed(1)
    print(f"ResNet-10 for {options.steps} steps at {options.lr}")
    for step in range(options.steps):
        images, labels = synthetic_batch(generator, 8, 10)
        loss = criterion(compiled(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
