"""A batch is a dict of tensors, as tokenizers return it."""
# vary: batch['tokens'].shape[1]=12,9

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(30, 16), nn.Linear(16, 3)

    def forward(self, batch):
        hidden = self.embed(batch["tokens"]) * batch["mask"].unsqueeze(-1)
        return self.out(hidden.sum(1) / batch["mask"].sum(1, keepdim=True))


compiled = torch.compile(Classifier(), backend="aot_eager")
for rows, length in ((4, 8), (4, 12), (4, 9), (3, 11), (6, 7)):
    compiled(
        {"tokens": torch.randint(0, 30, (rows, length)), "mask": torch.ones(rows, length)}
    ).sum().backward()
