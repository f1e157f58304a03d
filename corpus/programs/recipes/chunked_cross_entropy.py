"""Cross entropy in compiled chunks, so that the logits of a large vocabulary never exist all at once."""
# corpus: mode=training steps=8

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


@torch.compile
def chunk_loss(hidden, weight, targets):
    """The sum over the targets of one chunk, and the log of the partition function squared (z-loss)."""
    logits = (hidden @ weight.T).float()
    z = logits.logsumexp(-1)
    valid = targets != -100
    picked = logits.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return ((z - picked) * valid).sum() + 1e-4 * (z.square() * valid).sum()


class LMHeadLoss(nn.Module):
    def __init__(self, width, vocab, chunks):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab, width) / width**0.5)
        self.chunks = chunks

    def forward(self, hidden, targets):
        hidden, targets = hidden.flatten(0, 1), targets.flatten()
        total = hidden.new_zeros(())
        for h, t in zip(hidden.chunk(self.chunks), targets.chunk(self.chunks)):
            total = total + checkpoint(chunk_loss, h, self.weight, t, use_reentrant=False)
        return total / (targets != -100).sum()


class Model(nn.Module):
    def __init__(self, vocab=512, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.gru = nn.Sequential(nn.Linear(width, 64), nn.Mish(), nn.Linear(64, width))
        self.loss = LMHeadLoss(width, vocab, chunks=4)

    def forward(self, tokens):
        hidden = self.embed(tokens[:, :-1])
        hidden = F.normalize(hidden.cumsum(1) + self.gru(hidden), dim=-1)
        return self.loss(hidden, tokens[:, 1:])


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(0, 512, (8, 33))
    tokens[:, 30:] = tokens[:, 27:30]
    print("ready")
    for step in range(8):
        loss = model(tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
