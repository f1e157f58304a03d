"""Marked regions (`torch.compiler.nested_compile_region`): traced and divided once, called at each site."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import nested_compile_region

from tests.programs.program import Cases, Fixed, leaf, plain, tape

cases = Cases("regions")


@nested_compile_region
def layer(x: Tensor, w: Tensor) -> Tensor:
    return nn.functional.gelu(x @ w) + x


@cases(lambda: (tape(4, 4), leaf(4, 4)), "dynamo", "dynamic", "inductor")
def layers_alike(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(4):
        x = layer(x, w)
    return x


@cases(lambda: (plain(4, 4), leaf(4, 4)), "dynamo", "inductor")
def first_operand_without_gradient(x: Tensor, w: Tensor) -> Tensor:
    return layer(layer(x, w), w)


@cases(lambda: (leaf(4, 4), leaf(4, 4)), "dynamo")
def layers_of_two_layouts(x: Tensor, w: Tensor) -> Tensor:
    return layer(x, w) + layer(x.t(), w)


@nested_compile_region
def softened(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.softmax(x, -1).t(), x.argmax(-1)


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic", "inductor")
def result_is_a_view_of_what_is_kept(x: Tensor) -> Any:
    y, at = softened(x)
    return y, at, softened(x * 2)[0]


@cases(lambda: (leaf(3, 4),), "dynamo")
def written_result(x: Tensor) -> Any:
    y, at = softened(x)
    return (y * 2).add_(1), at.add_(1)


@nested_compile_region
def several(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x * y, x.detach() + 1, y.sin(), (x.exp() * y).expand(2, *x.shape)


@cases(lambda: (leaf(3), leaf(3)), "dynamo", "dynamic", "inductor")
def several_results(x: Tensor, y: Tensor) -> Any:
    a, b, c, d = several(x, y)
    return a.sum(), b, c * 2, d.sum()


@cases(lambda: (leaf(3), leaf(3)), "dynamo")
def results_that_nobody_reads(x: Tensor, y: Tensor) -> Any:
    return several(x, y)[3] * 2 + several(y, x)[3]


@nested_compile_region
def dropped(x: Tensor) -> Tensor:
    return nn.functional.dropout(x.sin(), 0.5) * x


@cases(lambda: (leaf(6, 5),), "dynamo")
def dropout_in_a_region(x: Tensor) -> Tensor:
    return dropped(dropped(x))


@nested_compile_region
def outer(x: Tensor, w: Tensor) -> Tensor:
    return layer(layer(x, w).tanh(), w)


@cases(lambda: (leaf(4, 4), leaf(4, 4)), "dynamo", "dynamic", "inductor")
def region_in_a_region(x: Tensor, w: Tensor) -> Tensor:
    return outer(outer(x, w), w)


@nested_compile_region
def partly(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x * 2
    return x.sigmoid() * y


@cases(lambda: (leaf(3),), "dynamo")
def no_grad_in_a_region(x: Tensor) -> Tensor:
    return partly(partly(x))


@cases(lambda: (leaf(3, 4),), "dynamo")
def region_in_a_checkpoint(x: Tensor) -> Any:
    return torch.utils.checkpoint.checkpoint(lambda x: partly(x.sin()).cos(), x, use_reentrant=False)


@nested_compile_region
def sliced(x: Tensor, count: int) -> Tensor:
    return x[:count].exp() * x.shape[0]


@cases(lambda: (leaf(5, 3),), "dynamo", "dynamic")
def sizes_in_a_region(x: Tensor) -> Tensor:
    return sliced(x, x.shape[0] - 1) * 2


class Block(nn.Module):
    """One layer of a stack."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    @nested_compile_region
    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Stack(nn.Module):
    """Identical layers, each with parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.layers:
            x = block(x)
        return x


cases(lambda: (leaf(4, Fixed(8)),), "dynamo", "dynamic", "inductor")(Stack)
