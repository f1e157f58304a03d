"""A data loader with two worker processes feeds a compiled convolutional network."""
# corpus: mode=training steps=12

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    """Images of horizontal or vertical bars with noise; each item is made in the worker from its index."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = 0.3 * torch.randn(1, 16, 16, generator=generator)
        label = index % 2
        line = int(torch.randint(2, 14, (1,), generator=generator))
        if label:
            image[0, line - 1 : line + 1] += 1
        else:
            image[0, :, line - 1 : line + 1] += 1
        return image, label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classifier = nn.Linear(16, 2)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def main():
    torch.manual_seed(0)
    loader = DataLoader(
        Shapes(), batch_size=16, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(0)
    )
    model = torch.compile(Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    print(f"ready: {len(loader)} batches an epoch")
    for epoch in range(2):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
