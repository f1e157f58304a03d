"""Data mutation of every kind of tensor: strided, empty, scalar, integer, complex; beside other arguments."""

from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Cases, ints, leaf, plain, tape

cases = Cases("mutation_kinds")


@cases(lambda: (plain(4, 3).t(),), "dynamo", "dynamic")
def transposed_input(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (plain(6, 4)[::2],))
def strided_input(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (tape(6, 4)[::2],))
def strided_non_leaf_view(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (plain(5)[2:],))
def input_with_offset(x: Tensor) -> Tensor:
    x.mul_(2)
    return x.view(3, 1)


@cases(lambda: (plain(0, 4),))
def zero_size(x: Tensor) -> Tensor:
    x.add_(1)
    return x.sum(0)


@cases(lambda: (plain(),), "dynamic")
def scalar(x: Tensor) -> Tensor:
    x.add_(1)
    return x * x


@cases(lambda: (tape(),))
def scalar_non_leaf(x: Tensor) -> Tensor:
    x.mul_(3)
    return x * x


@cases(lambda: (plain(1, 4).expand(3, 4),), unsupported="operator-on-expanded")
def expanded_input(x: Tensor) -> Tensor:
    x.add_(1)
    return x


@cases(lambda: (torch.arange(6).view(2, 3),), "dynamo")
def integers(x: Tensor) -> Tensor:
    x.add_(3)
    return x * 2


@cases(lambda: (plain(4) > 0,))
def booleans(mask: Tensor) -> Tensor:
    mask.logical_not_()
    return mask & mask


@cases(lambda: (torch.randn(3, dtype=torch.complex64),))
def complex_numbers(x: Tensor) -> Tensor:
    x.mul_(2j)
    return x.real


@cases(lambda: (plain(3, 4), plain(3, 4)))
def two_plain(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    y.add_(x)
    return x * y


@cases(lambda: (tape(3, 4), leaf(3, 4)), "dynamo")
def saved_before_mutation(x: Tensor, w: Tensor) -> Tensor:
    copy = x.clone()
    product = copy * w
    x.zero_()
    return product + x


@cases(lambda: (tape(3, 4), leaf(3, 4)))
def saved_itself_before_mutation(x: Tensor, w: Tensor) -> Tensor:
    product = x * w  # eager refuses the backward: the saved x is gone
    x.zero_()
    return product + x


@cases(lambda: (plain(3, 4), leaf(3, 4)))
def plain_saved_before_mutation(x: Tensor, w: Tensor) -> Tensor:
    product = x * w
    with torch.no_grad():
        x.add_(1)
    return product.sin()


@cases(lambda: (plain(3, 4), leaf(4, 2)))
def plain_mutated_then_saved(x: Tensor, w: Tensor) -> Tensor:
    x.add_(1)
    return (x @ w).relu()


@cases(lambda: (plain(3, 4), leaf(3, 4)))
def copied_from_detached(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(y.detach())
    return y * x


@cases(lambda: (plain(4, 3), plain(3, 4)))
def copy_of_other_stride(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(y.t())
    return x + 1


@cases(lambda: (plain(3, 4), plain(4)))
def scatter_and_fill(x: Tensor, y: Tensor) -> Tensor:
    x.scatter_(0, torch.tensor([[0, 1, 2, 0]]), y.view(1, 4))
    x.masked_fill_(x > 1, 0.0)
    return x.sum()


@cases(lambda: (plain(2, 3), plain(2, 3)), "inductor")
def swap_values(x: Tensor, y: Tensor) -> None:
    keep = x.clone()
    x.copy_(y)
    y.copy_(keep)


@cases(lambda: (plain(4, 3), torch.tensor([1]), plain(1, 3)), "inductor")
def written_by_index_and_copied(cache: Tensor, position: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    cache.index_copy_(0, position, new)
    return cache.clone(), cache[:2].clone()


@cases(lambda: (plain(4, 4),))
def diagonal(x: Tensor) -> Tensor:
    x.diagonal().fill_(1.0)
    return x @ x


@cases(lambda: (tape(4, 4),))
def diagonal_of_non_leaf(x: Tensor) -> Tensor:
    x.diagonal().mul_(2.0)
    return x @ x


@cases(lambda: (plain(4, 3),))
def unbound_rows(x: Tensor) -> Tensor:
    for row in x.unbind(0):
        row.add_(1)
    return x * 2


@cases(lambda: (plain(4, 3), 2.0, True, None, "sum"))
def beside_other_arguments(x: Tensor, factor: float, flag: bool, nothing: None, how: str) -> Any:
    if flag and nothing is None:
        x.mul_(factor)
    return getattr(x, how)()


@cases(lambda: (plain(3, 4).to(torch.bfloat16),), "dynamo")
def half_precision(x: Tensor) -> Tensor:
    x.mul_(2)
    return x.float() + 1


@cases(lambda: (plain(2, 2), plain(2, 2)))
def custom_resize(x: Tensor, y: Tensor) -> Tensor:
    x.clamp_(min=0).add_(y).sigmoid_()
    return x - y


@cases(lambda: (plain(3, 1).expand(-1, 2),), "dynamic", "inductor")
def expanded_filled(x: Tensor) -> Tensor:
    x.zero_()
    return x + 1


@cases(lambda: (plain(3, 1).expand(-1, 2),), "dynamo")
def expanded_filled_and_transposed(x: Tensor) -> Tensor:
    x.fill_(3)
    x.t_()
    return x * 2


@cases(lambda: (torch._neg_view(plain(4)),), "dynamo", "inductor")
def lazily_negated_written(x: Tensor) -> tuple[Tensor, Tensor]:
    x.add_(1)
    return x * 2, x.view(2, 2)


@cases(lambda: (torch._neg_view(leaf(4)),), "inductor")
def lazily_negated_read(x: Tensor) -> Tensor:
    return x.sin()


@cases(lambda: (ints(3, 4),), "dynamic")
def bits_changed_in_place(x: Tensor) -> Tensor:
    x &= 3
    x |= 4
    x ^= 2
    x <<= 2
    x >>= 1
    return x


@cases(lambda: (plain(3, 4),), "dynamic")
def foreach_on_one_tensor_twice(x: Tensor) -> Tensor:
    torch._foreach_mul_([x, x], 2.0)
    return x


@cases(lambda: (plain(3), plain(3), plain(3)), "inductor")
def foreach_crosswise(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    torch._foreach_add_([x, y, z], [y, x, x], alpha=2)
    return x * 1


@cases(lambda: (plain(3, 4),))
def foreach_on_rows(x: Tensor) -> Tensor:
    torch._foreach_addcmul_([x[0], x[1]], [x[1], x[0]], [x[2], x[2]], [2.0, 3.0])
    return x


@cases(lambda: (tape(3), plain(3)))
def foreach_crosswise_with_a_gradient(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    torch._foreach_mul_([made, y], [y, y])
    return made, y


def conjugated(*sizes: int) -> Tensor:
    """A complex tensor that is conjugated lazily."""
    return torch.complex(plain(*sizes), plain(*sizes)).conj()


@cases(lambda: (conjugated(3, 4),), "inductor")
def lazily_conjugated_written_and_then_a_part_of_it(z: Tensor) -> tuple[Tensor, Tensor]:
    z.mul_(2j)
    z.real.add_(1)
    return z, z.imag


@cases(lambda: (conjugated(3, 4), plain(4, 3)), "inductor")
def lazily_conjugated_moved_and_written(z: Tensor, x: Tensor) -> Tensor:
    z.t_()
    z.real.copy_(x)
    return z


@cases(lambda: (conjugated(3, 4), plain(3, 4)), "inductor")
def lazily_negated_written_and_returned_with_a_view(z: Tensor, x: Tensor) -> tuple[Tensor, Tensor, bool]:
    imaginary = (z * 1).conj().imag
    imaginary.copy_(x)
    return imaginary, imaginary[0], imaginary.is_neg()


@cases(lambda: (leaf(4),), unsupported="foreach-writes-twice")
def foreach_on_views_that_are_seen(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    hidden = x * 2
    first, second = hidden[:3], hidden[1:]
    torch._foreach_exp_([first, second])
    return hidden, first, second


@cases(lambda: (leaf(4),), "dynamic", "dynamo")
def foreach_on_a_tensor_and_a_view(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * 2
    view = hidden[:2]
    torch._foreach_sin_([hidden, view])
    return hidden, view


@cases(lambda: (leaf(4) * 1,), unsupported="foreach-writes-twice")
def foreach_on_views_of_an_input(x: Tensor) -> Tensor:
    first, second = x[:3], x[1:]
    torch._foreach_exp_([first, second])
    return first * second


@cases(lambda: (plain(3), plain(4)), "dynamo", "inductor")
def filled_by_factories(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    torch.arange(3, out=x)
    torch.linspace(0, 1, 4, out=y)
    made = torch.ones(3, 4)
    torch.zeros(4, out=made[0])
    torch.full((4,), 2.5, out=made[1])
    return x * 2, y + 1, made


@cases(lambda: (plain(3), plain(2)), "dynamo")
def grown_by_factories(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    same = torch.zeros(5, out=x)
    torch.eye(3, out=y)
    order = torch.empty(0, dtype=torch.int64)
    torch.arange(2, 8, 3, out=order)
    return same, y * 2, order


@cases(lambda: (plain(4), plain(4), plain(4)), "dynamo")
def drawn_by_factories(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    torch.randn(4, out=x)
    torch.randint(0, 9, (4,), out=y)
    torch.rand(2, out=z[1:3])
    order = torch.randperm(4, out=torch.empty(4, dtype=torch.int64))
    return x + y * z[order]


OVERLAP = "of tensors that overlap in part"


@cases(lambda: (plain(3, 4),), unsupported="partial-overlap")
def sums_into_a_row_of_what_it_reads(x: Tensor) -> Tensor:
    torch.sum(x, 0, out=x[0])
    return x * 2


@cases(lambda: (plain(3, 4),), unsupported="partial-overlap")
def sums_into_a_column_of_what_it_reads(x: Tensor) -> Tensor:
    torch.sum(x, 1, out=x[:, 1])
    return x * 2


@cases(lambda: (plain(3, 4),), unsupported="partial-overlap")
def joins_into_what_it_reads(x: Tensor) -> Tensor:
    return torch.cat([x[0], x[1]], out=x.view(-1)[:8])


@cases(lambda: (plain(3, 4),), unsupported="partial-overlap")
def puts_rows_on_rows(x: Tensor) -> Tensor:
    x[torch.tensor([0, 1])] = x[1:]
    return x * 2


@cases(lambda: (plain(3, 4),))
def sums_into_a_row_that_it_does_not_read(x: Tensor) -> Tensor:
    torch.sum(x[1:], 0, out=x[0])
    x[1].fill_(x[0, 2])
    return x.cumsum_(1) * 2


@cases(lambda: (plain(4, 4), leaf(0)))
def grown_leaf(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        torch.sin(x, out=y)
    return y * 2, y


@cases(lambda: (plain(4, 4), tape(7)))
def grown_with_a_history(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        torch.mm(x, x, out=y)
    return x * 2
