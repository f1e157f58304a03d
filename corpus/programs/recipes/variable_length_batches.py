"""Padded batches of different lengths: the second length makes torch.compile turn the sizes dynamic."""
# corpus: mode=training steps=10

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class Classifier(nn.Module):
    def __init__(self, vocab=50, width=32, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.query = nn.Parameter(torch.randn(width) / width**0.5)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, tokens):
        mask = tokens == 0
        h = self.embed(tokens)
        scores = (h @ self.query).masked_fill(mask, float("-inf"))
        pooled = (scores.softmax(-1).unsqueeze(-1) * h).sum(1)
        return self.mlp(pooled)


def batches(count, generator):
    for _ in range(count):
        size = generator.randint(3, 9)
        texts = [torch.randint(1, 50, (generator.randint(4, 25),)) for _ in range(size)]
        labels = torch.tensor([int(text.float().mean() * 3 / 50) for text in texts])
        yield pad_sequence(texts, batch_first=True), labels


def main():
    torch.manual_seed(0)
    generator = random.Random(0)
    model = Classifier()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    print("ready")
    for tokens, labels in batches(10, generator):
        loss = nn.functional.cross_entropy(compiled(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{tuple(tokens.shape)}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
