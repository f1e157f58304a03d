"""An MLP whose batch is too large for 80 GiB, with the usual recording of memory."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH, WIDTH, LAYERS = 262_144, 8192, 12


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.gelu(self.up(self.norm(x)))


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer() for _ in range(LAYERS)), nn.Linear(WIDTH, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = torch.randn(BATCH, WIDTH, device="cuda"), torch.randn(BATCH, 1, device="cuda")
    for _ in range(3):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
