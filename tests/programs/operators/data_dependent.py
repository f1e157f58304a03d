"""Numbers and sizes that only the data tells: `item()`, `nonzero()`, boolean masks, `torch._check`."""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from tests.programs.program import Cases, leaf, plain

cases = Cases("data_dependent")

BRANCH = "control flow that depends on data"


def start() -> Tensor:
    """An index that is legal in every tensor here."""
    return torch.randint(3, ())


@cases(lambda: (leaf(3),), "dynamic")
def item_as_factor(x: Tensor) -> Tensor:
    return x * x.sum().item()


@cases(lambda: (plain(3),), "dynamic", "inductor")
def item_returned(x: Tensor) -> tuple[float, Tensor]:
    return x.sum().item(), x * 2


@cases(lambda: (leaf(3),), "dynamic")
def item_returned_in_training(x: Tensor) -> tuple[float, Tensor]:
    return x.detach().max().item(), x * 2


@cases(lambda: (leaf(3, 2), start()), "dynamic")
def index_in_a_tensor(x: Tensor, at: Tensor) -> Tensor:
    return x[at] * 2


@cases(lambda: (plain(3, 2), start()), "dynamic", "inductor")
def index_in_a_tensor_as_a_view(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    return x[at], x[..., 1:]


@cases(lambda: (plain(3, 2), start()), "dynamic")
def write_at_an_index_in_a_tensor(x: Tensor, at: Tensor) -> Tensor:
    x[at] = 7
    x[at, 1:] += 1
    return x.sum()


@cases(lambda: (leaf(3, 2),))
def row_of_the_largest(x: Tensor) -> Tensor:
    return x[x[:, 0].argmax()].sin()


@cases(lambda: (plain(3),))
def to_list(x: Tensor) -> list[float]:
    return (x * 2).tolist()


@cases(lambda: (leaf(4), start()), "dynamic")
def item_as_size(x: Tensor, n: Tensor) -> Tensor:
    size = int_of(n)
    return torch.ones(size) * x.sum()


@cases(lambda: (leaf(4), start()), "dynamic")
def item_as_size_of_view(x: Tensor, n: Tensor) -> Tensor:
    size = int_of(n)
    torch._check(size <= x.shape[0])
    return x[:size]


@cases(lambda: (leaf(4), start()), "dynamic", "inductor")
def item_in_arithmetic(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    size = int_of(n)
    return x.new_zeros(size + 1) + x.mean(), size * 2


@cases(lambda: (leaf(4, 3), start()), "dynamic", "inductor")
def item_as_index(x: Tensor, n: Tensor) -> Tensor:
    size = int_of(n)
    torch._check(size < x.shape[0])
    return x.select(0, size) * 2


@cases(lambda: (leaf(4, 3), start()), "dynamic", "inductor")
def item_in_brackets(x: Tensor, n: Tensor) -> Tensor:
    index: Any = n.item()
    return x[index] * 2


def int_of(n: Tensor) -> int:
    """A size out of a tensor."""
    size: Any = n.item()
    torch._check(size >= 0)
    return size


@cases(lambda: (plain(5),), "dynamic")
def nonzero(x: Tensor) -> Tensor:
    return (x > 0).nonzero()


@cases(lambda: (leaf(6),), "dynamic")
def boolean_mask(x: Tensor) -> Tensor:
    return x[x > 0]


@cases(lambda: (leaf(6),), "dynamic")
def boolean_mask_reduced(x: Tensor) -> Tensor:
    return x[x > 0].sin().sum()


@cases(lambda: (plain(6),))
def boolean_mask_written(x: Tensor) -> Tensor:
    x[x > 0] = 0.0
    return x * 2


@cases(lambda: (leaf(3, 4), plain(3, 4)), "dynamic", "dynamo", "inductor")
def added_to_behind_a_mask(x: Tensor, y: Tensor) -> Tensor:
    hidden = x * 2
    hidden[y > 0] += 1
    return hidden * hidden


@cases(lambda: (leaf(2, 3), plain(2, 3)))
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_select(mask > 0) * 3


@cases(lambda: (plain(6), leaf(1)), "dynamic", "inductor")
def boolean_mask_and_more(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([x[x > 0], x[:1]]) * w


@cases(lambda: (leaf(), torch.tensor([0]), leaf()))
def size_made_in_the_backward(x: Tensor, index: Tensor, value: Tensor) -> Tensor:
    return x.index_fill(0, index, value)


@cases(lambda: (leaf(6),), "dynamic")
def size_of_a_mask(x: Tensor) -> tuple[Tensor, int]:
    chosen = x[x > 0]
    return chosen * 2, chosen.shape[0]


@cases(lambda: (leaf(4), torch.randint(3, (4,))))
def repeat_interleave(x: Tensor, times: Tensor) -> Tensor:
    return x.repeat_interleave(times) * 2


@cases(lambda: (torch.randint(3, (6,)),), "dynamic")
def unique(x: Tensor) -> tuple[Tensor, Tensor]:
    values, inverse = torch.unique(x, return_inverse=True)
    return values, inverse


@cases(lambda: (leaf(6), start()), "dynamic", "inductor")
def narrow_at_a_tensor(x: Tensor, n: Tensor) -> Tensor:
    return torch.narrow(x, 0, n, 2)


@cases(lambda: (leaf(6), torch.tensor([2, 4])), "dynamic", "dynamo", unsupported="reads-values")
def split_at_a_tensor(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    return torch.tensor_split(x, at)


@cases(lambda: (leaf(6, 2),), "dynamic", "dynamo", unsupported="reads-values")
def split_at_a_known_tensor(x: Tensor) -> tuple[Tensor, ...]:
    return (*x.tensor_split(torch.tensor([2, 4])), *torch.tensor_split(x, torch.tensor(2), 1))


@cases(lambda: (leaf(6, 2),), "dynamic", "dynamo", "inductor")
def branch_on_known_values(x: Tensor) -> Tensor:
    levels = torch.zeros(3)
    levels[1] = 2
    levels.add_(torch.arange(3))
    if levels.max() == 3 and not torch.equal(levels, levels + 1) and torch.allclose(levels, levels * 1.0):
        x = x * levels.sum().item()
    first, (last,) = int(levels[0]), levels[2:].tolist()
    return x[first : int(last)] + 1


@cases(lambda: (leaf(6),), "dynamo")
def known_values_in_a_loop(x: Tensor) -> Tensor:
    steps = torch.linspace(0, 9, 10).to(torch.int64)
    for at in range(10):
        if steps[at] % 2 == 0:
            x = x * 2 + steps[at].item()
    return x


@cases(lambda: (plain(3),), unsupported="data-dependent-size")
def branch_on_random_numbers(x: Tensor) -> Tensor:
    return x * 2 if torch.rand(3).sum() > 1 else x - 1


@cases(lambda: (plain(6), start()), "dynamic", "inductor")
def written_at_a_tensor(x: Tensor, n: Tensor) -> Tensor:
    at = int_of(n)
    torch._check(at + 2 <= x.shape[0])
    x[at : at + 2].mul_(2)
    return x + 1


@cases(lambda: (leaf(3, 4),), "inductor")
def covariance(x: Tensor) -> Tensor:
    return torch.cov(x)


@cases(lambda: (leaf(3, 4),), "dynamic")
def dropout_in_evaluation(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5, training=False)


@cases(lambda: (plain(3),), unsupported="data-dependent-size")
def branch_on_values(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x - 1


@cases(lambda: (plain(3),), "dynamic", unsupported="data-dependent-size")
def branch_on_an_item(x: Tensor) -> Tensor:
    return x * 2 if x.sum().item() > 0 else x - 1


@cases(lambda: (leaf(4, 3, 5), start()), "dynamic")
def items_in_brackets_beside_others(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    index: Any = n.item()
    return x[..., index], x[1:, None, index, ::2] * 2, x[torch.tensor([2, 0]), index].sin()


@cases(lambda: (plain(4, 3), start()), "dynamic")
def item_in_brackets_written(x: Tensor, n: Tensor) -> Tensor:
    (index,) = n.reshape(1).tolist()
    x[index] = 2.0
    x[:, index] += 1
    return x * 2


@cases(lambda: (leaf(3, 2), torch.tensor(3)), "dynamic")
def tensor_of_numbers(x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    n = count.item()
    return x * torch.tensor([n, 2]), torch.tensor([n * 0.5])
