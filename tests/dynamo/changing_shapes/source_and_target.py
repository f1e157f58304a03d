"""A translation model: both sentences have lengths of their own."""
# vary: source.shape[1]=11,6

import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 40)

    def forward(self, source, target):
        memory, query = self.embed(source), self.embed(target)
        return self.out(self.attend(query, memory, memory, need_weights=False)[0])


compiled = torch.compile(Translator(), backend="aot_eager")
for source, target in ((9, 7), (11, 7), (6, 12), (10, 5)):
    compiled(torch.randint(0, 40, (3, source)), torch.randint(0, 40, (3, target))).sum().backward()
