"""bfloat16 autocast inside and outside the compiled function, with a float32 island for the loss."""
# corpus: mode=training steps=10 tolerance=3e-2

import torch
import torch.nn.functional as F
from torch import nn


class Mixer(nn.Module):
    def __init__(self, tokens=16, width=32, classes=4):
        super().__init__()
        self.embed = nn.Linear(12, width)
        self.token_mix = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.channel_mix = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.token_mix(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channel_mix(self.norm2(x))
        with torch.autocast("cpu", enabled=False):
            return self.head(x.float().mean(1))


model = None


@torch.compile
def training_loss(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(model(x), y, label_smoothing=0.1)


@torch.compile
def predict(x):
    return model(x).softmax(-1)


def main():
    global model
    torch.manual_seed(0)
    model = Mixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x = torch.randn(32, 16, 12)
    y = x.mean((1, 2)).argsort().argsort() // 8
    print("ready")
    for step in range(8):
        loss = training_loss(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3g}")
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for part in x.split(16):
            print(f"confidence {predict(part).amax(-1).mean().item():.3g}")


if __name__ == "__main__":
    main()
