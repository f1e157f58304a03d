"""Two ranks with FSDP2, each block compiled by itself; run with torchrun."""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Block(), Block())
for block in model:
    block.compile(backend=BACKEND)
    fully_shard(block)
fully_shard(model)
for _ in range(2):
    model(torch.randn(8, 16)).square().mean().backward()
dist.destroy_process_group()
