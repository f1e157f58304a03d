"""Checkpointing with dropout: recomputation must draw the same masks, around and inside compiled code."""
# corpus: mode=training steps=8

import torch
import torch._inductor.config
from torch import nn
from torch.utils.checkpoint import checkpoint

# Use eager's random number generator, so that losses can be compared with a run without torch.compile.
torch._inductor.config.fallback_random = True


class MLP(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.drop1 = nn.Dropout(p)
        self.down = nn.Linear(2 * width, width)
        self.drop2 = nn.Dropout(p)

    def forward(self, x):
        return x + self.drop2(self.down(self.drop1(torch.relu(self.up(x)))))


class Stack(nn.Module):
    """The second block is checkpointed inside the compiled region."""

    def __init__(self, width, p):
        super().__init__()
        self.first = MLP(width, p)
        self.second = MLP(width, p)

    def forward(self, x):
        return checkpoint(self.second, self.first(x), use_reentrant=False)


def main():
    torch.manual_seed(0)
    width = 32
    around = torch.compile(MLP(width, 0.2))
    inside = torch.compile(Stack(width, 0.1))
    head = nn.Linear(width, 1)
    parameters = [*around.parameters(), *inside.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    x = torch.randn(64, width)
    y = x[:, :4].prod(1, keepdim=True)
    print("ready")

    for step in range(8):
        h = checkpoint(around, x, use_reentrant=False, preserve_rng_state=True)
        loss = nn.functional.mse_loss(head(inside(h)), y)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 10.0)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g} gradient norm {norm.item():.4g}")


if __name__ == "__main__":
    main()
