"""Tensor parallelism: a feed-forward network split over two gloo processes with DTensor, then compiled."""
# corpus: mode=training processes=2 steps=8

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class FeedForward(nn.Module):
    def __init__(self, width=16, hidden=64):
        super().__init__()
        self.w1 = nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)
        self.w3 = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.feed_forward = FeedForward()
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(x + self.feed_forward(x))


def worker(rank, world_size, port):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world_size)
    )
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = Net()
    plan = {"w1": ColwiseParallel(), "w3": ColwiseParallel(), "w2": RowwiseParallel()}
    parallelize_module(model.feed_forward, mesh["tp"], plan)
    model.feed_forward.compile()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    x = torch.randn(32, 16)
    y = x.square().mean(1, keepdim=True)
    if rank == 0:
        print("ready", flush=True)
    for step in range(8):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(2, port), nprocs=2)
