"""Outputs that share memory with an intermediate of the function, or with each other."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("views_of_intermediates")


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic")
def one_view(x: Tensor) -> Tensor:
    return (x * 2).view(-1)


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic")
def two_views(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made.view(-1), made.t()


@cases(lambda: (leaf(3, 4),), "dynamic")
def three_views_with_offset(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    made = x * 2
    return made[0], made[1:], made[:, 1]


@cases(lambda: (leaf(3, 4),), "dynamo")
def view_then_itself(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made.view(-1), made


@cases(lambda: (leaf(3, 4),))
def itself_then_view(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made, made.view(-1)


@cases(lambda: (leaf(3, 4),))
def itself_between_views(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    made = x * 2
    return made.t(), made, made[0]


@cases(lambda: (leaf(3, 4),))
def same_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made, made


@cases(lambda: (leaf(3, 4),))
def same_view_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    flat = (x * 2).view(-1)
    return flat, flat


@cases(lambda: (plain(3, 4),))
def two_views_none_requires_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made.view(-1), made.t()


@cases(lambda: (plain(3, 4),))
def itself_and_view_none_requires_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made, made.t()


@cases(lambda: (leaf(3, 4),), "dynamic")
def with_its_detach(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made, made.detach()


@cases(lambda: (leaf(3, 4),))
def detach_first(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made.detach(), made


@cases(lambda: (leaf(3, 4),))
def view_and_detached_view(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made.view(-1), made.detach().t()


@cases(lambda: (leaf(3, 4),))
def only_detached_views(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    made = (x * 2).detach()
    return made.view(-1), made.t(), x * 3


@cases(lambda: (leaf(3, 4),))
def views_and_detached_mixed(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return made.view(-1), made.detach(), made[0], made[1].detach()


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def two_intermediates_mixed(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    first, second = x * 2, y * x
    return first.view(-1), second.view(-1), first.t(), second[0]


@cases(lambda: (leaf(3, 4),))
def made_in_place_then_detached(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x.clone().mul_(2)
    return made, made.detach().view(-1)


@cases(lambda: (leaf(3, 4),))
def mutated_through_view(x: Tensor) -> Tensor:
    made = x * 2
    made[0].add_(1)
    return made


@cases(lambda: (leaf(3, 4),), "inductor")
def mutated_between_views(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    row = made[0]
    made.mul_(3)
    return row, made[1]


@cases(lambda: (leaf(3, 4),))
def mutated_through_squeezed(x: Tensor) -> Tensor:
    made = (x * 2).unsqueeze(0)
    made.squeeze(0).select(0, 1).mul_(3)
    return made


@cases(lambda: (leaf(3, 4),))
def metadata_of_intermediate(x: Tensor) -> Tensor:
    made = x * 2
    made.t_()
    made.unsqueeze_(0)
    return made


@cases(lambda: (leaf(3, 4),))
def unbind(x: Tensor) -> tuple[Tensor, ...]:
    return (x * 2).unbind(0)


@cases(lambda: (leaf(3, 4),))
def unbind_and_base(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return (*made.unbind(0), made)


@cases(lambda: (leaf(3, 4),))
def unbind_and_one_view(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return (*made.unbind(0), made.view(-1))


@cases(lambda: (leaf(3, 4),))
def unbind_and_several_views(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return (*made.unbind(0), made.view(-1), made.t())


@cases(lambda: (leaf(4, 6),), "dynamo", "dynamic")
def split_heads(x: Tensor) -> tuple[Tensor, ...]:
    q, k, v = (x * 2).split(2, dim=1)
    return q.view(2, 2, 2), k.t(), v


@cases(lambda: (leaf(4, 6),))
def chunk_used_inside(x: Tensor) -> Tensor:
    a, b = (x * 2).chunk(2, dim=1)
    return a.sigmoid() * b


@cases(lambda: (plain(4, 6),))
def chunk_none_requires_grad(x: Tensor) -> tuple[Tensor, ...]:
    return (x * 2).chunk(2, dim=1)


@cases(lambda: (leaf(3, 4),))
def expanded(x: Tensor) -> Tensor:
    return x.sum(0).expand(3, 4)


@cases(lambda: (leaf(3, 4),))
def transposed(x: Tensor) -> Tensor:
    return (x * 2).t()


@cases(lambda: (leaf(3, 4),))
def slice_with_offset(x: Tensor) -> Tensor:
    return (x * 2)[1:]


@cases(lambda: (leaf(3, 4), leaf(4, 5)))
def unsafe_view_of_matmul(x: Tensor, w: Tensor) -> Tensor:
    return x.view(1, 3, 4) @ w


@cases(lambda: (leaf(3, 4), leaf(4, 5)))
def unsafe_view_and_its_view(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    out = x.view(1, 3, 4) @ w
    return out, out.view(-1)


@cases(lambda: (tape(3, 4),), "dynamic")
def all_kinds(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return x.view(-1), made.view(-1), made.t(), x, x.detach(), made.sum()


@cases(lambda: (tape(3, 4), plain(3, 4)))
def all_kinds_with_mutations(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x.mul_(2)
    y.t_()
    made = x + y.t()
    return x.view(-1), made.view(-1), made, y, y[0]


@cases(lambda: (leaf(3, 4),))
def under_no_grad(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    with torch.no_grad():
        made = x * 2
        flat = made.view(-1)
    return made, flat, x * 3


@cases(lambda: (leaf(3, 4),))
def view_under_no_grad_of_differentiable(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    with torch.no_grad():
        flat = made.view(-1)
    return made, flat


@cases(lambda: (plain(3, 4),))
def fresh_constant_views(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    ones = torch.ones(3, 4)
    return ones, ones.view(-1), x + ones


@cases(lambda: (torch.randn(3, dtype=torch.complex64, requires_grad=True),))
def conjugate(x: Tensor) -> Tensor:
    return (x * 2).conj()


@cases(lambda: (torch.randn(3, dtype=torch.complex64, requires_grad=True),))
def real_and_imaginary(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2j
    return made.real, made.imag


@cases(lambda: (leaf(3, 4),))
def copied_into_view_of_fresh(x: Tensor) -> Tensor:
    out = torch.zeros(5, 4)
    out[1:4] = x
    return out


@cases(lambda: (leaf(3, 4),))
def fresh_with_view_after_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.zeros(5, 4)
    out[1:4].copy_(x)
    return out, out[0]


@cases(lambda: (leaf(3, 4), plain(3, 4)), "inductor")
def operand_of_cat_beside_it(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x.sin()
    return torch.cat([hidden, y * 2]), hidden


@cases(lambda: (leaf(2, 5, 4, 6), plain(0)), "inductor", "dynamic")
def cat_of_a_transposed_tensor_and_an_empty_one(x: Tensor, empty: Tensor) -> Tensor:
    """As a cache of keys and values begins: the result is contiguous."""
    return torch.cat([empty, x.transpose(1, 2)], dim=-2)


@cases(lambda: (leaf(2, 3, 4, 5), plain(2, 3, 0, 5)), "inductor")
def cat_of_channels_last_and_nothing(x: Tensor, empty: Tensor) -> Tensor:
    image = x.contiguous(memory_format=torch.channels_last)
    return torch.cat([image, empty.contiguous(memory_format=torch.channels_last)], dim=2)


@cases(lambda: (leaf(3, 4),), "inductor")
def copied_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x.sin()
    return made.clone(), made.clone()


@cases(lambda: (plain(4, 4)[::2, 1:],), "inductor", "dynamic")
def copies_of_an_input_with_gaps_that_is_written_to(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x.reshape(-1), x.flatten()[1:]


@cases(lambda: (leaf(3, 4),), "inductor")
def copies_by_other_operators(x: Tensor) -> tuple[Tensor, ...]:
    made = x + 1
    return made.to(torch.float32, copy=True), made.to(torch.float32, copy=True), made.repeat(1, 1), made**1


@cases(lambda: (plain(3, 4),), "inductor")
def input_written_and_copied_twice(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x.sin_()
    return x.clone(), x, x.clone()


@cases(lambda: (leaf(3, 4),), "dynamic")
def view_without_grad_of_what_is_written_to_after(x: Tensor) -> Any:
    hidden = x * 2
    with torch.no_grad():
        row = hidden[0]
    hidden.add_(1)
    return row, hidden


@cases(lambda: (leaf(3, 4),))
def view_without_grad_alone_of_what_is_written_to_after(x: Tensor) -> Any:
    hidden = x * 2
    with torch.no_grad():
        row = hidden[0]
    hidden.add_(1)
    return row


@cases(lambda: (leaf(3, 4),))
def several_views_of_what_is_written_to_after(x: Tensor) -> Any:
    hidden = x * 2
    rows = hidden.unbind(0)
    hidden.mul_(hidden.sin())
    return hidden, hidden[1], rows[0]


@cases(lambda: (plain(1, 8, 4), plain(1, 4, 2, 4)), "dynamo", "inductor")
def image_of_one_transposed_batch(x: Tensor, y: Tensor) -> Any:
    """Memory format is read off the stride of a dimension of size 1, which fake kernels give otherwise."""
    image = x.transpose(1, 2).reshape(1, 4, 2, 4)
    scaled = (image + y) / 2
    return image, scaled, scaled * y[:, :, :1, :1], nn.functional.group_norm(scaled, 2)
