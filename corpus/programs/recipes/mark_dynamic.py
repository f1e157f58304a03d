"""mark_dynamic: one compilation serves batches and sequences of every length."""
# corpus: mode=training steps=12

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocab=64, width=32, tags=7):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.Linear(3 * width, width)
        self.out = nn.Linear(width, tags)

    def forward(self, tokens):
        h = self.embed(tokens)
        padded = nn.functional.pad(h, (0, 0, 1, 1))
        h = h + torch.relu(self.mix(torch.cat([padded[:, :-2], h, padded[:, 2:]], dim=-1)))
        return self.out(h)


torch.manual_seed(0)
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)


@torch.compile(fullgraph=True)
def train_loss(tokens, targets):
    logits = model(tokens)
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


print("ready")
for step in range(12):
    batch, length = 4 + step % 5, 10 + 3 * (step % 4)
    tokens = torch.randint(0, 64, (batch, length))
    targets = tokens % 7
    for tensor in (tokens, targets):
        torch._dynamo.mark_dynamic(tensor, 0, min=2, max=64)
        torch._dynamo.mark_dynamic(tensor, 1, min=2, max=512)
    loss = train_loss(tokens, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: batch {batch} length {length} loss {loss.item():.4g}")
