"""Outputs that are inputs or views of inputs."""

from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("views_of_inputs")


@cases(lambda: (plain(3, 4),), "dynamo", "dynamic")
def input_itself(x: Tensor) -> Tensor:
    return x


@cases(lambda: (leaf(3, 4),))
def leaf_itself(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x * 2


@cases(lambda: (tape(3, 4),))
def non_leaf_itself(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x * 2


@cases(lambda: (plain(3, 4),))
def input_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x


@cases(lambda: (plain(3, 4),))
def input_and_its_view(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x.view(-1)


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic")
def view(x: Tensor) -> Tensor:
    return x.view(-1)


@cases(lambda: (tape(3, 4),), "dynamic")
def view_of_non_leaf(x: Tensor) -> Tensor:
    return x.view(-1)


@cases(lambda: (plain(3, 4),))
def view_of_plain(x: Tensor) -> Tensor:
    return x.view(4, 3)


@cases(lambda: (tape(3, 4), plain(3, 4)), "inductor", "dynamic")
def several_views(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return x.t(), y[0], x[1:, ::2], y.unsqueeze(0)


@cases(lambda: (tape(3, 4),))
def view_beside_computed(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[1], (x * 2).sum()


@cases(lambda: (tape(3, 4),))
def view_of_view(x: Tensor) -> Tensor:
    return x.t().unsqueeze(0).narrow(1, 1, 2)


@cases(lambda: (tape(3, 4),))
def diagonal(x: Tensor) -> Tensor:
    return x.diagonal()


@cases(lambda: (tape(3, 4),))
def expanded(x: Tensor) -> Tensor:
    return x.unsqueeze(0).expand(2, 3, 4)


@cases(lambda: (tape(3, 4),))
def strided_window(x: Tensor) -> Tensor:
    return x.as_strided((2, 3), (4, 1), 1)


@cases(lambda: (tape(3, 4),))
def unfolded(x: Tensor) -> Tensor:
    return x.unfold(1, 2, 1)


@cases(lambda: (tape(3, 4),))
def detached(x: Tensor) -> Tensor:
    return x.detach()


@cases(lambda: (leaf(3, 4),))
def detached_view_beside_view(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.view(-1), x.detach().view(-1)


@cases(lambda: (leaf(3, 4),))
def data_of_input(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.data, x * 2


@cases(lambda: (leaf(3, 4),))
def view_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.view(-1)


@cases(lambda: (tape(3, 4),))
def view_under_no_grad_of_non_leaf(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        flat = x.view(-1)
    return flat, x * 2


@cases(lambda: (leaf(3, 4),), context=torch.no_grad)
def view_under_outer_no_grad(x: Tensor) -> Tensor:
    return x.view(-1)


@cases(lambda: (plain(3, 4),), context=torch.inference_mode)
def view_under_inference_mode(x: Tensor) -> Tensor:
    return x.view(-1)


@cases(lambda: (tape(3, 4),), "dynamo")
def view_after_mutation(x: Tensor) -> Tensor:
    x.mul_(2)
    return x.view(-1)


@cases(lambda: (tape(3, 4),))
def view_before_and_after_mutation(x: Tensor) -> tuple[Tensor, Tensor]:
    before = x.view(-1)
    x.mul_(2)
    return before, x.t()


@cases(lambda: (plain(3, 4),))
def view_of_plain_after_mutation(x: Tensor) -> Tensor:
    x.mul_(2)
    return x[1:]


@cases(lambda: (plain(3, 4), leaf(3, 4)))
def view_after_it_starts_to_require_grad(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(y)
    return x[1:]


@cases(lambda: (tape(3, 4),))
def unbind(x: Tensor) -> tuple[Tensor, ...]:
    return x.unbind(0)


@cases(lambda: (plain(3, 4),))
def unbind_of_plain(x: Tensor) -> tuple[Tensor, ...]:
    return x.unbind(0)


@cases(lambda: (tape(3, 4),))
def unbind_and_ordinary_view(x: Tensor) -> tuple[Tensor, ...]:
    return (*x.unbind(0), x.view(-1))


@cases(lambda: (tape(4, 4),), "dynamic")
def chunk(x: Tensor) -> tuple[Tensor, ...]:
    return x.chunk(2, 1)


@cases(lambda: (tape(4, 4),))
def split_partly_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    first, _, last = x.split([1, 2, 1])
    return first, last.sin()


@cases(lambda: (tape(4, 4),), "dynamic")
def view_of_chunk(x: Tensor) -> Tensor:
    return x.chunk(2, 1)[0].t()


@cases(lambda: (torch.randn(3, dtype=torch.complex64),))
def conjugate(x: Tensor) -> Tensor:
    return x.conj()


@cases(lambda: (torch.randn(3, dtype=torch.complex64),))
def real_part(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.real, x.imag


@cases(lambda: (torch.randn(3, dtype=torch.complex64),))
def negative_view(x: Tensor) -> Tensor:
    return x.conj().imag


@cases(lambda: (torch.randn(3, dtype=torch.complex64, requires_grad=True),))
def view_as_real(x: Tensor) -> Tensor:
    return torch.view_as_real(x)


@cases(lambda: (plain(4),))
def view_of_other_dtype(x: Tensor) -> Tensor:
    return x.view(torch.int32)


@cases(lambda: (plain(4, 3).t(),))
def contiguous_of_transposed(x: Tensor) -> Tensor:
    return x.contiguous()


@cases(lambda: (leaf(4, 3),))
def contiguous_is_the_input(x: Tensor) -> Tensor:
    return x.contiguous()


@cases(lambda: (leaf(4, 3),))
def reshape_is_a_view(x: Tensor) -> Tensor:
    return x.reshape(-1)


@cases(lambda: (plain(4, 3).t().requires_grad_(),))
def reshape_is_a_copy(x: Tensor) -> Tensor:
    return x.reshape(-1)


@cases(lambda: (leaf(4, 3),))
def cast_to_same_dtype(x: Tensor) -> Tensor:
    return x.to(torch.float32)


@cases(lambda: (plain(6, 5)[::2, 1:],), "dynamic")
def view_of_strided_input(x: Tensor) -> Tensor:
    return x[:, 1]


@cases(lambda: (tape(6, 4)[1:3],))
def view_of_argument_that_is_a_view(x: Tensor) -> Tensor:
    return x.t()


@cases(lambda: (plain(0, 4),))
def view_of_empty(x: Tensor) -> Tensor:
    return x.view(4, 0)


@cases(lambda: (plain(3, 4),))
def sizes_beside_view(x: Tensor) -> tuple[Tensor, int, Any]:
    return x.t(), x.shape[0], x.dim()


@cases(lambda: (leaf(3, 4),))
def same_view_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    flat = x.view(-1)
    return flat, flat


@cases(lambda: (leaf(3, 4),))
def view_written_later_inside(x: Tensor) -> Tensor:
    copy = x.clone()
    copy[0].mul_(2)
    return copy.view(-1)


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def dropped_dimension_and_integers(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    return {"row": x[0], "where": y.argmax(1), "mask": y > 0, "flat": y.flatten()}


@cases(lambda: (leaf(1, 4),))
def squeeze(x: Tensor) -> Tensor:
    return x.squeeze()


@cases(lambda: (leaf(3, 4),))
def permute(x: Tensor) -> Tensor:
    return x.permute(1, 0).movedim(0, 1)


@cases(lambda: (leaf(3, 4),))
def alias_op(x: Tensor) -> Tensor:
    return torch.ops.aten.alias(x)


@cases(lambda: (leaf(3, 4),), "dynamic")
def view_as_other(x: Tensor) -> Tensor:
    return x.view_as(x)


@cases(lambda: (plain(3, 4),))
def view_of_detached_is_no_view_of_the_input(x: Tensor) -> Tensor:
    return x.detach()[1:]


@cases(lambda: (tape(4, 4),))
def view_in_grad_mode_of_a_view_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        rows = x[1:]
    return rows.diagonal()


@cases(lambda: (leaf(4, 4),))
def view_in_grad_mode_of_a_transposed_leaf_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        turned = x.t()
    return turned.view_as(turned).diagonal()


@cases(lambda: (tape(3, 4),))
def view_without_grad_of_what_is_written_to_after(x: Tensor) -> Any:
    with torch.no_grad():
        row = x[0]
    x.mul_(2)
    return row, x[1], x.sin()


@cases(lambda: (plain(3, 4), leaf(3, 4)))
def view_without_grad_of_what_comes_to_require_grad(x: Tensor, y: Tensor) -> Any:
    with torch.no_grad():
        row = x[0]
    x.mul_(y)
    return row
