"""Serve a classifier whose weights are stored in float8 by torchao, one request size after another."""
# corpus: mode=inference needs=torchao tolerance=2e-2

import torch
from torch import nn
from torchao.quantization import Float8WeightOnlyConfig, quantize_


class TextClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(200, 32, mode="mean", padding_idx=0)
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, 3)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens))).softmax(dim=-1)


torch.manual_seed(0)
model = TextClassifier().to(torch.bfloat16).eval()
quantize_(model.layers, Float8WeightOnlyConfig())
serve = torch.compile(model)
print("stored as", model.layers[0].weight.qdata.dtype)

with torch.no_grad():
    for length in (4, 4, 9, 12, 7, 4, 15, 9):
        tokens = torch.randint(0, 200, (5, length))
        probabilities = serve(tokens)
        entropy = -(probabilities * probabilities.log()).sum(dim=1).mean()
        print(f"length {length}: entropy {entropy.item():.3g}")
