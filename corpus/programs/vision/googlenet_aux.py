"""Train torchvision's GoogLeNet with its auxiliary classifiers."""
# corpus: mode=training needs=torchvision

import warnings

import torch
import torch.nn.functional as F
from torchvision.models import GoogLeNet
from torchvision.models.googlenet import GoogLeNetOutputs


def total_loss(outputs: GoogLeNetOutputs, labels):
    main = F.cross_entropy(outputs.logits, labels)
    first = F.cross_entropy(outputs.aux_logits1, labels)
    second = F.cross_entropy(outputs.aux_logits2, labels)
    return main + 0.3 * (first + second)


def main():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GoogLeNet(num_classes=5, aux_logits=True, init_weights=False, dropout=0.0, dropout_aux=0.0)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    print("inception modules:", sum(type(module).__name__ == "Inception" for module in model.modules()))
    for step in range(8):
        labels = torch.arange(4) % 5
        images = torch.randn(4, 3, 64, 64) + labels.view(-1, 1, 1, 1)
        loss = total_loss(compiled(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
