"""Random operators: the same numbers as eager for a seed, the same mask in forward and backward."""

import torch
from torch import Tensor, nn

from tests.programs.program import Cases, leaf, plain

cases = Cases("randomness")


@cases(lambda: (leaf(50, 4),), "inductor", "dynamic")
def dropout(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5)


@cases(lambda: (leaf(50, 4),))
def dropout_in_chain(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x.sin(), 0.3).cos()


@cases(lambda: (leaf(50, 4),))
def two_dropouts(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(torch.nn.functional.dropout(x, 0.5), 0.5)


@cases(lambda: (leaf(50, 4),))
def dropout_switched_off(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5, training=False)


@cases(lambda: (plain(5, 4),))
def dropout_without_gradients(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5)


@cases(lambda: (leaf(5, 4),), "dynamo")
def noise(x: Tensor) -> Tensor:
    return x * torch.randn_like(x) + torch.rand(4)


@cases(lambda: (plain(5, 4),))
def noise_in_place(x: Tensor) -> Tensor:
    x.normal_()
    return x * 2


@cases(lambda: (leaf(5, 4),))
def bernoulli_mask(x: Tensor) -> tuple[Tensor, Tensor]:
    mask = torch.bernoulli(torch.full((5, 4), 0.5))
    return x * mask, mask


@cases(lambda: (leaf(5, 4),))
def permutation(x: Tensor) -> Tensor:
    return x[torch.randperm(5)]


@cases(lambda: (leaf(2, 6, 4),))
def random_view(x: Tensor) -> tuple[Tensor, Tensor]:
    made = torch.rand_like(x) * x
    return made.view(-1), made


@cases(lambda: (plain(3, 8),))
def dropout_module() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 2))


@cases(lambda: (plain(3, 8),))
def dropout_module_in_eval() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 2)).eval()


@cases(lambda: (plain(4),), "dynamo")
def unused_draw(x: Tensor) -> Tensor:
    torch.rand(3)
    return x * torch.rand(4)


@cases(lambda: (leaf(4),))
def unused_draw_last(x: Tensor) -> Tensor:
    out = x * torch.rand(4)
    torch.randn_like(x)
    return out


@cases(lambda: (leaf(5, 4),))
def rrelu(x: Tensor) -> Tensor:
    return torch.nn.functional.rrelu(x, training=True)


@cases(lambda: (plain(5, 4), torch.Generator().manual_seed(3)), later="generator argument")
def own_generator(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + torch.rand(4, generator=generator)
