"""Two ranks with DistributedDataParallel; run with torchrun."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
model = torch.compile(DistributedDataParallel(net), backend=BACKEND)
for _ in range(2):
    model(torch.randn(8, 16)).square().mean().backward()
dist.destroy_process_group()
