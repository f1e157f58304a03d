"""Distributed tensors over a process group that only pretends to have other members."""

from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.programs.program import Cases, Fixed, leaf

cases = Cases("distributed")


@cache
def mesh() -> Any:
    """Two members, of which this process is the first."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    return init_device_mesh("cpu", (2,))


def spread(*sizes: int, placement: Any = None, grad: bool = True) -> Tensor:
    """A distributed tensor around random numbers; sharded by rows where nothing else is asked for."""
    local = torch.randn(sizes)
    made = DTensor.from_local(local, mesh(), [placement or Shard(0)], run_check=False).detach()
    return made.requires_grad_(grad)


def not_spread(*sizes: int) -> Tensor:
    """A plain tensor for a function that asks for the mesh itself, which cannot be made while one traces."""
    mesh()
    return leaf(*map(Fixed, sizes))


@cases(lambda: (spread(4, 4, grad=False),), "dynamo")
def inference(x: Tensor) -> Tensor:
    return x.sin() + 1


@cases(lambda: (spread(4, 4),), "dynamo")
def training(x: Tensor) -> Tensor:
    return (x * x).sin()


@cases(lambda: (spread(4, 4), spread(4, 4, placement=Replicate())), "dynamo")
def matrix_product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


@cases(lambda: (spread(4, 4), spread(4, 4, placement=Replicate()), spread(4, placement=Replicate())))
def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, w, b).relu()


@cases(lambda: (spread(4, 4),))
def partial_result(x: Tensor) -> Tensor:
    return x.sum()


@cases(lambda: (spread(4, 4),), "dynamo")
def redistributed(x: Any) -> Tensor:
    return x.redistribute(mesh(), [Replicate()])


@cases(lambda: (spread(4, 4, placement=Partial()),))
def reduced(x: Any) -> Tensor:
    return x.redistribute(mesh(), [Shard(0)]).sin()


@cases(lambda: (spread(4, 4),), "dynamo")
def to_local(x: Any) -> Tensor:
    return x.to_local() * 2


@cases(lambda: (not_spread(4, 4),), "dynamo")
def from_local(x: Tensor) -> Tensor:
    return DTensor.from_local(x, mesh(), [Shard(0)], run_check=False) * 2


@cases(lambda: (not_spread(4, 4),))
def there_and_back(x: Tensor) -> Tensor:
    spread_out: Any = DTensor.from_local(x, mesh(), [Shard(0)], run_check=False)
    out: Tensor = (spread_out * 2).redistribute(mesh(), [Replicate()]).to_local().sin()
    return out


@cases(lambda: (spread(4, 4),))
def view_returned(x: Tensor) -> Tensor:
    return x.view(-1)


@cases(lambda: (spread(4, 4, grad=False),))
def mutated(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (spread(4, 4) * 2,))
def mutated_with_history(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (spread(4, 4), spread(4, 4, placement=Replicate())), "dynamo")
def redistributed_after_what_dynamo_cannot_trace(x: Any, w: Any) -> Tensor:
    return (x.redistribute(mesh(), [Replicate()]) @ w).redistribute(mesh(), [Shard(1)]).sin()
