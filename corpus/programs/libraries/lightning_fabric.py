"""Train with Lightning Fabric in bfloat16-mixed precision, the compiled module passed to fabric.setup."""
# corpus: mode=training needs=lightning tolerance=2e-2

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric, seed_everything
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class CharacterModel(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.mixers = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2) for _ in range(2))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens).transpose(1, 2)
        for mixer in self.mixers:
            x = x + F.gelu(mixer(x)[..., : tokens.shape[1]])
        return self.head(x.transpose(1, 2))


def main():
    seed_everything(0, verbose=False)
    fabric = Fabric(accelerator="cpu", precision="bf16-mixed")
    text = "the quick brown fox jumps over the lazy dog. " * 24
    alphabet = sorted(set(text))
    tokens = torch.tensor([alphabet.index(character) for character in text])
    windows = tokens.unfold(0, 17, 9)
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(windows), batch_size=12, shuffle=True))
    model = CharacterModel(len(alphabet), 48)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model, optimizer = fabric.setup(torch.compile(model), optimizer)
    print(f"{len(alphabet)} characters, {len(loader)} batches")
    for step, (batch,) in enumerate(loader):
        if batch.shape[0] < 12:
            break
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        optimizer.zero_grad()
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3g}")


if __name__ == "__main__":
    main()
