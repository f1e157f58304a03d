"""Which value a variable's name means: what its expression gives, and nothing that it computes on the way."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aotlens.options import CompileOptions
from aotlens.partition.user_names import user_names
from aotlens.pipeline import compile_direct


def layer(x: Tensor) -> Tensor:
    hidden = functional.layer_norm(x, x.shape[-1:]) @ x.t()
    return hidden.sin()


def called_twice(x: Tensor) -> Tensor:
    first = layer(x)
    second = layer(first)
    return second * first


def dropped(x: Tensor) -> Tensor:
    kept = functional.dropout(x.cos(), 0.5)
    return kept * kept


def normed(x: Tensor) -> Tensor:
    scaled = functional.layer_norm(x, x.shape[-1:])
    scaled += x.sin()
    return scaled * scaled


def several(x: Tensor) -> Tensor:
    one, two = x.sin().chunk(2)
    three, four = one.exp(), two.cos()
    return three * four


def unnamed(x: Tensor) -> Tensor:
    return x.sin() * x.cos()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        projected = self.up(x)
        if (total := projected.exp().sum()) is not None:
            return total * projected
        return x


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (called_twice, ["hidden = mm", "first = sin", "hidden = mm_1", "second = sin_1"]),
        (dropped, ["kept = mul"]),
        (normed, ["scaled = getitem", "scaled = add"]),
        (several, ["one = getitem", "two = getitem_1", "three = exp", "four = cos"]),
        (unnamed, []),
        (Model(), ["projected = addmm", "total = sum"]),
    ],
    ids=lambda case: getattr(case, "__name__", type(case).__name__),
)
def test_the_name_is_of_the_result(function: Callable[..., Tensor], names: list[str]) -> None:
    x = torch.ones(4, 4, requires_grad=True)
    joint = compile_direct(function, (x,), {}, CompileOptions(backend="eager")).joint
    found = user_names(joint)
    assert [f"{found[id(node)]} = {node.name}" for node in joint.program.nodes if id(node) in found] == names
