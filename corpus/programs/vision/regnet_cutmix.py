"""Train torchvision's RegNet on CutMix and MixUp batches from a data loader's collate function."""
# corpus: mode=training needs=torchvision

import torch
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.models.regnet import BlockParams, RegNet
from torchvision.transforms import v2

NUM_CLASSES = 5


class Shapes(Dataset):
    """Squares of different sizes, one class per size."""

    def __init__(self, length, transform):
        self.length, self.transform = length, transform

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        label = index % NUM_CLASSES
        image = torch.zeros(3, 40, 40, dtype=torch.uint8)
        image[:, 8 : 12 + 4 * label, 8 : 12 + 4 * label] = 40 * (label + 1)
        return self.transform(image), label


def main():
    torch.manual_seed(0)
    transform = v2.Compose(
        [
            v2.RandomCrop(32),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean=(0.4, 0.4, 0.4), std=(0.2, 0.2, 0.2)),
        ]
    )
    blend = v2.RandomChoice([v2.CutMix(num_classes=NUM_CLASSES), v2.MixUp(num_classes=NUM_CLASSES)])
    loader = DataLoader(
        Shapes(80, transform),
        batch_size=8,
        shuffle=True,
        collate_fn=lambda batch: blend(*default_collate(batch)),
    )
    parameters = BlockParams.from_init_params(depth=5, w_0=8, w_a=10.0, w_m=2.0, group_width=8, se_ratio=0.25)
    model = RegNet(parameters, num_classes=NUM_CLASSES, stem_width=8)
    model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    print(f"{len(loader)} batches, {sum(p.numel() for p in model.parameters())} parameters")
    for step, (images, targets) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
