"""Sentences of many lengths, padded to the longest of each batch."""
# vary: tokens.shape[1]=13,7,21,30

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0)

    def forward(self, tokens):
        return self.layer(self.embed(tokens)).mean(1)


model = Encoder()
compiled = torch.compile(model, backend="aot_eager")
for length in (9, 13, 7, 21, 30):
    compiled(torch.randint(0, 50, (4, length))).sum().backward()
