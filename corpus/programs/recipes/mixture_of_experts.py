"""A mixture of experts with top-2 routing and data-dependent token counts, and the balance loss."""
# corpus: mode=training steps=10

import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class MoE(nn.Module):
    def __init__(self, width=24, experts=4, top_k=2):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, 2 * width) for _ in range(experts))
        self.top_k = top_k

    def forward(self, x):
        probabilities = self.router(x).softmax(-1)
        weights, chosen = probabilities.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == index)
            result.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        load = F.one_hot(chosen, len(self.experts)).float().mean((0, 1))
        return result, len(self.experts) * (load * probabilities.mean(0)).sum()


def main():
    torch.manual_seed(0)
    layer, head = MoE(), nn.Linear(24, 3)
    compiled = torch.compile(layer)
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.05)
    x = torch.randn(48, 24)
    y = x[:, :3].argmax(1)
    print("ready")
    for step in range(10):
        mixed, balance = compiled(x)
        loss = F.cross_entropy(head(x + mixed), y)
        optimizer.zero_grad()
        (loss + 0.01 * balance).backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g} balance {balance.item():.4g}")


if __name__ == "__main__":
    main()
