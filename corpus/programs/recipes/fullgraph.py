"""fullgraph=True: loss, gradient penalty and statistics in one graph, any graph break would be an error."""
# corpus: mode=training steps=10

import torch
import torch.nn.functional as F
from torch import nn


class Autoencoder(nn.Module):
    def __init__(self, inputs=24, code=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, code))
        self.decoder = nn.Sequential(nn.Linear(code, 32), nn.Tanh(), nn.Linear(32, inputs))

    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code), code


@torch.compile(fullgraph=True)
def losses(model, x, sparsity: float):
    reconstruction, code = model(x)
    centred = (code - code.mean(0)) / code.std(0)
    correlation = centred.T @ centred / (len(code) - 1)
    parts = {
        "reconstruction": F.mse_loss(reconstruction, x),
        "sparsity": sparsity * code.abs().mean(),
        "decorrelation": (correlation - torch.eye(code.shape[1])).square().mean(),
    }
    return sum(parts.values()), {name: value.detach() for name, value in parts.items()}


def main():
    torch.manual_seed(0)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    basis = torch.randn(4, 24)
    x = torch.randn(128, 4) @ basis
    print("ready")
    for step in range(10):
        total, parts = losses(model, x, 0.01)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        shown = " ".join(f"{name} {value.item():.4g}" for name, value in parts.items())
        print(f"step {step}: {total.item():.4g} = {shown}")


if __name__ == "__main__":
    main()
