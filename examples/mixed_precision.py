"""A training loop as written for a GPU: autocast, a gradient scaler, pinned batches, CUDA's own calls."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, width: int = 512, classes: int = 10) -> None:
        super().__init__()
        self.first = nn.Linear(64, width)
        self.norm = nn.LayerNorm(width)
        self.second = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(F.gelu(self.first(x))))


device = torch.device("cuda")
print(f"training on {torch.cuda.get_device_name(device)}")
torch.manual_seed(0)

model = Classifier().to(device)
weights = torch.linspace(0.5, 1.5, 10)  # stays on the CPU
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cuda")
data = TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,)))


@torch.compile
def loss_of(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, weight=weights.to(x.device))


for batch in DataLoader(data, batch_size=128, shuffle=True, pin_memory=True):
    x, y = (tensor.to(device, non_blocking=True) for tensor in batch)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_of(x, y, weights)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(f"loss {loss.item():.3f}, {torch.cuda.max_memory_allocated() >> 20} MiB")
