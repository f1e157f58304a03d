"""Nested tensors with jagged layout: a wrapper around values and offsets, with a ragged size."""

from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Cases, Fixed, leaf

cases = Cases("jagged")


def jagged(*, grad: bool = False) -> Tensor:
    """Two rows of unequal length."""
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=grad)


@cases(lambda: (jagged(),), "dynamo")
def inference(x: Tensor) -> Tensor:
    return x.sin() + 1


@cases(lambda: (jagged(grad=True),), "dynamo")
def training(x: Tensor) -> Tensor:
    return (x * x).sin()


@cases(lambda: (jagged(grad=True), leaf(Fixed(5), Fixed(3)), leaf(Fixed(5))), "dynamo")
def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias).relu()


@cases(lambda: (jagged(grad=True),))
def layer_norm(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, (3,))


@cases(lambda: (jagged(grad=True),))
def values(x: Tensor) -> Tensor:
    return x.values() * 2


@cases(lambda: (jagged(grad=True),))
def transposed(x: Tensor) -> Tensor:
    return x.transpose(1, 2)


@cases(lambda: (jagged(),))
def mutated(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (jagged(grad=True),))
def summed(x: Tensor) -> Tensor:
    return x.sum()


@cases(lambda: (jagged(grad=True),))
def two_results(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.cos(), x.softmax(-1)


@cases(lambda: (jagged(grad=True),))
def padded(x: Tensor) -> Tensor:
    return x.to_padded_tensor(0.0)


@cases(lambda: (jagged(grad=True),), "dynamo", "inductor")
def padded_to_the_longest_row(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x * 2).to_padded_tensor(0.0), x.softmax(1)


@cases(lambda: (jagged(),), "dynamo")
def longest_row_as_a_number(x: Tensor) -> Tensor:
    y: Any = x
    return x.values() * (y._get_max_seqlen() if y._get_min_seqlen() < 4 else y._get_min_seqlen())


@cases(lambda: (leaf(Fixed(6), Fixed(3)), torch.tensor([0, 2, 6])))
def made_inside(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.nested.nested_tensor_from_jagged(x, offsets) * 2


@cases(lambda: (jagged(grad=True), leaf(Fixed(3), Fixed(4))))
def matrix_product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


@cases(lambda: (jagged(),), "dynamo")
def reduced_over_the_ragged_size(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(1), x.mean(1, keepdim=True), torch.amax(x, 1), x.sin().sum(2)


@cases(lambda: (jagged(grad=True),), "dynamo")
def reduced_with_a_gradient(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.sum((1, 2)), torch.amax(x, 1), x.softmax(1).sum()


@cases(lambda: (jagged(grad=True),), "dynamo")
def sum_whose_gradient_torch_lacks(x: Tensor) -> Tensor:
    return x.sum(1) * 2


@cases(lambda: (jagged(grad=True),), "dynamo")
def mean_whose_gradient_torch_lacks(x: Tensor) -> Tensor:
    return x.mean(1) * 2


@cases(lambda: (jagged(grad=True),), "dynamo")
def views_by_the_ragged_size(x: Tensor) -> tuple[Tensor, Tensor]:
    heads = x.unflatten(-1, [3, 1]).transpose(1, 2)
    return heads, (heads * 2).transpose(1, 2).flatten(-2)


@cases(lambda: (jagged(grad=True),), "dynamo")
def view_with_the_ragged_size(x: Tensor) -> tuple[Tensor, Tensor]:
    size = x.size(1)
    return x.view(2, size, 3, 1) * 2, x.reshape(x.size(0), size, 1, 3) * 3


@cases(lambda: (jagged(grad=True),), "dynamo", later="strided-nested-tensor")
def attention(x: Tensor) -> Tensor:
    heads = x.unflatten(-1, [3, 1]).transpose(1, 2)
    mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    return mixed.transpose(1, 2).flatten(-2)
