"""Two ranks that share a matrix product; rank 1 scales its part first. Run with torchrun."""

import sys

import torch
import torch.distributed as dist
from torch import Tensor

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"

dist.init_process_group("gloo")
RANK = dist.get_rank()


def feed_forward(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    hidden = torch.relu(x @ up)
    if RANK == 1:
        hidden = hidden * 0.5
    partial = hidden @ down
    dist.all_reduce(partial)
    everyone = [torch.empty_like(partial) for _ in range(2)]
    dist.all_gather(everyone, partial)
    return torch.stack(everyone).sum(0)


torch.manual_seed(RANK)
compiled = torch.compile(feed_forward, backend=BACKEND)
with torch.no_grad():
    compiled(torch.randn(8, 16), torch.randn(16, 32), torch.randn(32, 16))
dist.destroy_process_group()
