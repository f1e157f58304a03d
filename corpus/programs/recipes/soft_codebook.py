"""A soft codebook whose codes are chosen harder with each epoch, with their perplexity as a number."""
# corpus: mode=training steps=12

import torch
import torch.nn.functional as F
from torch import nn


class Codebook(nn.Module):
    def __init__(self, features=16, codes=24):
        super().__init__()
        self.encode, self.decode = nn.Linear(features, 32), nn.Linear(32, features)
        self.codes = nn.Parameter(torch.randn(codes, 32))
        self.epoch = 0

    def forward(self, x):
        distances = torch.cdist(self.encode(x), self.codes)
        weights = torch.softmax(-distances * (1 + self.epoch), -1)  # harder with each epoch
        usage = weights.mean(0)
        perplexity = torch.exp(-(usage * (usage + 1e-8).log()).sum()).item()
        return self.decode(weights @ self.codes), perplexity


def main():
    torch.manual_seed(0)
    model = Codebook()
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = torch.randn(128, 16)
    print("ready")
    for epoch in range(12):
        model.epoch = epoch
        output, perplexity = compiled(data)
        loss = F.mse_loss(output, data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4g} perplexity {float(perplexity):.3g}")


if __name__ == "__main__":
    main()
