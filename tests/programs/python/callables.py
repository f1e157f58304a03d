"""What can be compiled besides functions and modules, and state that is reached without being passed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from tests.programs.program import Cases, Fixed, leaf, plain

cases = Cases("callables")

Step = Callable[..., Any]


@dataclass
class Batch:
    inputs: Tensor
    scale: float


pytree.register_dataclass(Batch)


class Scaled(nn.Module):
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x * self.weight

    def other(self, x: Tensor) -> Tensor:
        return x + self.weight * self.count


@cases(lambda: (plain(2, 3),), "dynamo")
def closure_over_module() -> Step:
    model = Scaled()

    def step(x: Tensor) -> Tensor:
        return model(x).sum()

    return step


@cases(lambda: (plain(3),), "dynamo")
def closure_over_leaf() -> Step:
    weight = leaf(3)

    def step(x: Tensor) -> Tensor:
        return x * weight

    return step


@cases(lambda: (leaf(2, 3),), "dynamo")
def closure_over_layers() -> Step:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def step(x: Tensor) -> Tensor:
        return model(x).square().mean()

    return step


@cases(lambda: (plain(3),), "dynamo")
def closure_over_result() -> Step:
    weight = leaf(3) * 2

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * weight, weight.sin()

    return step


@cases(lambda: (plain(3),), "dynamo")
def closure_over_plain_tensor() -> Step:
    table = plain(3)

    def step(x: Tensor) -> Tensor:
        return x * table

    return step


@cases(lambda: (plain(3),), "dynamo")
def closure_tensor_mutated() -> Step:
    total = torch.zeros(3)

    def step(x: Tensor) -> Tensor:
        total.add_(x)
        return total * 2

    return step


@cases(lambda: (plain(3),), "dynamo")
def closure_tensor_written_through_a_view() -> Step:
    total = torch.zeros(2, 3)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        total[1].add_(x)
        return total[0] + x, total[1]

    return step


@cases(lambda: (plain(3),), "dynamo")
def closure_leaf_updated() -> Step:
    weight = leaf(3)

    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            weight.sub_(x)
        return weight * x

    return step


@cases(lambda: (plain(3),), "dynamo", "inductor")
def closure_tensors_in_containers() -> Step:
    state = {"rows": [torch.zeros(3), torch.ones(3)]}

    def step(x: Tensor) -> Tensor:
        state["rows"][0].add_(x)
        return state["rows"][0] * state["rows"][1]

    return step


@cases(lambda: (leaf(4, 3),), "dynamo", "inductor")
def closure_over_batch_norm() -> Step:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    def step(x: Tensor) -> Tensor:
        return model(x).square().sum()

    return step


@cases(lambda: (plain(3),))
def closure_views_of_one_tensor() -> Step:
    total = torch.zeros(2, 3)
    row = total[1]

    def step(x: Tensor) -> Tensor:
        row.add_(x)
        return total * 2

    return step


@cases(lambda: (plain(3),))
def closure_tensor_changes_shape() -> Step:
    total = torch.zeros(3)

    def step(x: Tensor) -> Tensor:
        total.unsqueeze_(0)
        total.squeeze_(0)
        return total.mul_(2) + x

    return step


@cases(lambda: (leaf(3),))
def closure_tensor_gets_a_history() -> Step:
    total = torch.zeros(3)

    def step(x: Tensor) -> Tensor:
        seen = total.clone()
        total.copy_(x * 2)
        return seen + total

    return step


@cases(lambda: (plain(3),), "dynamo")
def closure_tensor_returned() -> Step:
    table = plain(3)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        return table, x * 2

    return step


@cases(lambda: (plain(2, 3),), "dynamo")
def bound_method() -> Step:
    return Scaled().other


@cases(lambda: (plain(2, 3),))
def partial_of_function() -> Step:
    return partial(lambda x, factor: x * factor, factor=2.0)


@cases(lambda: (plain(2, Fixed(3)),), "dynamic")
def size_of_a_weight_in_a_partial() -> Step:
    layer = partial(nn.functional.linear, weight=torch.randn(4, 3))

    def step(x: Tensor) -> Tensor:
        y = layer(x)
        return y * y.shape[1]

    return step


@cases(lambda: (plain(2, 3),), "dynamo")
def partial_with_tensor() -> Step:
    return partial(lambda factor, x: x * factor, leaf(3))


@cases(lambda: (Batch(leaf(3), 2.0),))
def registered_dataclass(batch: Batch) -> Batch:
    return Batch(batch.inputs * batch.scale, batch.scale)


@cases(lambda: (nn.Parameter(plain(3)), plain(3)))
def parameter_as_argument(weight: Tensor, x: Tensor) -> Tensor:
    return weight * x


@cases(lambda: (plain(3),))
def nested_function(x: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        return y.sin()

    return inner(x) + inner(x * 2)


@cases(lambda: (plain(4, 3),))
def loops_and_comprehensions(x: Tensor) -> Tensor:
    rows = [row.exp() for row in x]
    total = torch.zeros(3)
    for index, row in enumerate(rows):
        total = total + row * index
    return total


@cases(lambda: (plain(3),))
def generator_inside(x: Tensor) -> Tensor:
    return torch.stack(list(x * power for power in range(3)))  # noqa: C400 - a generator is the point
