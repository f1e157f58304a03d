"""Two ranks with DistributedDataParallel; run with torchrun.

Dynamo looks into the user's own module; of an `nn.Sequential` behind DDP it compiles nothing.
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.compile(DistributedDataParallel(Net()), backend=BACKEND)
for _ in range(2):
    model(torch.randn(8, 16)).square().mean().backward()
dist.destroy_process_group()
