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


@nested_compile_region
def counted(x: Tensor, count: Tensor) -> Tensor:
    count.add_(1)
    return x.sin() * count


@cases(lambda: (leaf(3, 4), plain(4)), "dynamo", "dynamic", "inductor")
def region_that_writes_to_an_operand(x: Tensor, count: Tensor) -> Any:
    return counted(x, count) + counted(x * 2, count), count * 2


@cases(lambda: (plain(3, 4), plain(4)), "dynamo", "inductor")
def region_that_writes_to_an_operand_without_gradient(x: Tensor, count: Tensor) -> Any:
    return counted(x, count) + counted(x * 2, count)


@cases(lambda: (plain(3, 4), plain(4)), "dynamo", context=torch.inference_mode)
def region_that_writes_to_an_operand_in_inference_mode(x: Tensor, count: Tensor) -> Any:
    return counted(x, count) + counted(x * 2, count)


@nested_compile_region
def scaled_in_place(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(y)
    return x.exp()


@cases(lambda: (tape(3, 4), leaf(4)), "dynamo")
def region_that_writes_to_what_has_a_gradient(x: Tensor, y: Tensor) -> Any:
    return scaled_in_place(x * 2, y) + scaled_in_place(x, y)


@cases(lambda: (plain(3, 4), leaf(4)), "dynamo")
def region_that_writes_what_has_a_gradient(x: Tensor, y: Tensor) -> Any:
    return scaled_in_place(x, y), x.sum()


@nested_compile_region
def around_counted(x: Tensor, count: Tensor) -> Tensor:
    return counted(x, count).cos()


@cases(lambda: (leaf(3, 4), plain(4)), "dynamo")
def region_in_a_region_that_writes_to_an_operand(x: Tensor, count: Tensor) -> Any:
    return around_counted(around_counted(x, count), count)


class Normed(nn.Module):
    """A marked layer with statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    @nested_compile_region
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x)).relu()


@cases(lambda: (leaf(5, Fixed(4)),), "dynamo", "inductor")
class MarkedLayersWithStatistics(nn.Module):
    """The same region with other buffers at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Normed() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x
