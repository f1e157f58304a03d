"""The older checkpointing (use_reentrant=True) around compiled blocks and with checkpoint_sequential."""
# corpus: mode=training steps=8

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def block(width):
    return nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width, momentum=None), nn.Tanh())


class Model(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = torch.compile(nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)))
        self.tail = nn.Sequential(*(torch.compile(block(width)) for _ in range(4)))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = x + checkpoint(self.first, x, use_reentrant=True)
        x = checkpoint_sequential(self.tail, 2, x, use_reentrant=True)
        return self.head(x)


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    # A reentrant checkpoint needs an input that requires a gradient.
    x = torch.randn(48, 32, requires_grad=True)
    y = x.detach().abs().mean(1, keepdim=True)
    print("ready")
    for step in range(8):
        x.grad = None
        loss = nn.functional.l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g} input gradient {x.grad.abs().sum().item():.3g}")


if __name__ == "__main__":
    main()
