"""A denoising autoencoder that counts its steps in forward, and halves activations that are too large."""
# corpus: mode=training steps=12

import torch
import torch.nn.functional as F
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, features=32, width=64):
        super().__init__()
        self.encode, self.decode = nn.Linear(features, width), nn.Linear(width, features)
        self.step = 0

    def forward(self, x):
        self.step += 1
        noise = torch.randn_like(x) / self.step  # less noise with each step
        hidden = F.gelu(self.encode(x + noise))
        if hidden.abs().max() > 3.0:
            hidden = hidden / 2
        return self.decode(hidden)


def main():
    torch.manual_seed(0)
    model = Denoiser()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = torch.randn(256, 8) @ torch.randn(8, 32)
    print("ready")
    for step in range(12):
        batch = data[torch.randint(0, 256, (64,))]
        loss = F.mse_loss(compiled(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
