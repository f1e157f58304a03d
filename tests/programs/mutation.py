"""Data mutation of inputs: seen by autograd, hidden from it, under no_grad, and mixtures."""

from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("mutation")


@cases(lambda: (plain(3, 4),), "dynamo", "dynamic")
def add_in_place(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


@cases(lambda: (plain(3, 4),))
def nothing_returned(x: Tensor) -> None:
    x.mul_(3)


@cases(lambda: (plain(3, 4),), "dynamic")
def mutated_then_returned(x: Tensor) -> Tensor:
    return x.mul_(3)


@cases(lambda: (plain(3, 4),))
def alias_of_mutated_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(3)
    return x, x.view(-1)


@cases(lambda: (tape(3, 4),), "dynamo", "dynamic")
def non_leaf(x: Tensor) -> Tensor:
    x.mul_(2)
    return x.sin()


@cases(lambda: (tape(3, 4), tape(3, 4)))
def two_non_leaves(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(y)
    y.add_(x)
    return x + y


@cases(lambda: (tape(3, 4), plain(3, 4), leaf(3, 4)))
def mixed_several(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    x.mul_(z)
    y.add_(1)
    return x + y * z


@cases(lambda: (leaf(3, 4),), refused="leaf")
def leaf_requiring_grad(x: Tensor) -> Tensor:
    x.mul_(2)
    return x


@cases(lambda: (plain(3, 4), leaf(3, 4)), "dynamic")
def starts_to_require_grad(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return x * 2


@cases(lambda: (plain(3, 4), leaf(3, 4)))
def starts_to_require_grad_alone(x: Tensor, y: Tensor) -> None:
    x.mul_(y)


@cases(lambda: (leaf(3, 4),))
def hidden_by_detach(x: Tensor) -> Tensor:
    x.detach().mul_(2)
    return x + 1


@cases(lambda: (leaf(3, 4),))
def hidden_by_data(x: Tensor) -> Tensor:
    x.data.mul_(2)
    return x + 1


@cases(lambda: (tape(3, 4),))
def hidden_on_non_leaf(x: Tensor) -> Tensor:
    x.detach().add_(1)
    return x.cos()


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic")
def under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    return x * 3


@cases(lambda: (tape(3, 4),))
def under_no_grad_on_non_leaf(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    return x * 3


@cases(lambda: (leaf(3, 4),))
def under_no_grad_through_view(x: Tensor) -> Tensor:
    with torch.no_grad():
        x[0].mul_(2)
    return x * 3


@cases(lambda: (tape(3, 4),))
def seen_hidden_and_no_grad(x: Tensor) -> Tensor:
    x.mul_(2)
    x.detach().add_(1)
    with torch.no_grad():
        x.sub_(3)
    return x.sin()


@cases(lambda: (tape(3, 4),))
def hidden_then_seen(x: Tensor) -> Tensor:
    x.detach().add_(1)
    x.mul_(2)
    return x.sin()


@cases(lambda: (plain(3, 4),), context=torch.no_grad)
def inference_only(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (leaf(3, 4),), context=torch.no_grad)
def leaf_under_outer_no_grad(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (plain(3, 4),), context=torch.inference_mode)
def under_inference_mode(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (plain(3, 4),), "dynamic")
def through_view(x: Tensor) -> Tensor:
    x.view(-1).add_(1)
    return x.cos()


@cases(lambda: (plain(3, 4),), "dynamo")
def through_slice(x: Tensor) -> Tensor:
    x[1:, :2].mul_(5)
    return x.cos()


@cases(lambda: (tape(3, 4),), "inductor")
def through_slice_of_non_leaf(x: Tensor) -> Tensor:
    x[1:, :2].mul_(5)
    return x.cos()


@cases(lambda: (tape(3, 4),))
def through_view_of_view(x: Tensor) -> Tensor:
    x.t()[0].unsqueeze(0).mul_(5)
    return x.cos()


@cases(lambda: (plain(3, 4),))
def after_view_was_taken(x: Tensor) -> Tensor:
    row = x[0]
    x.add_(1)
    return row * 2


@cases(lambda: (tape(3, 4),))
def view_taken_before_is_returned(x: Tensor) -> Tensor:
    row = x[0]
    x.mul_(2)
    return row


@cases(lambda: (tape(3, 4),))
def view_taken_before_is_mutated(x: Tensor) -> Tensor:
    row = x[0]
    x.mul_(2)
    row.add_(1)
    return row * x.sum()


@cases(lambda: (plain(3, 4),))
def setitem(x: Tensor) -> Tensor:
    x[:, 1] = 7.0
    return x.sum(0)


@cases(lambda: (tape(3, 4), leaf(4)))
def setitem_with_gradient(x: Tensor, row: Tensor) -> Tensor:
    x[1] = row
    return x * x


@cases(lambda: (plain(3, 4),))
def index_put(x: Tensor) -> Tensor:
    x[torch.tensor([0, 2])] = 1.5
    return x * 2


@cases(lambda: (plain(3, 4), plain(3, 4)))
def copy_from_other(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(y)
    return x + y


@cases(lambda: (plain(3, 4), leaf(4)))
def copy_broadcast_with_gradient(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(y)
    return x * 2


@cases(lambda: (plain(3, 4),))
def cancels_out(x: Tensor) -> Tensor:
    x.add_(1)
    x.sub_(1)
    return x * 2


@cases(lambda: (plain(3, 4),))
def added_zero(x: Tensor) -> Tensor:
    x.add_(0)
    return x * 2


@cases(lambda: (plain(3, 4),))
def overwritten(x: Tensor) -> Tensor:
    x.add_(1)
    x.fill_(2)
    return x * 2


@cases(lambda: (tape(3, 4),))
def zeroed_non_leaf(x: Tensor) -> Tensor:
    before = x * 2
    x.zero_()
    return before + x


@cases(lambda: (plain(3, 4), plain(3, 4), plain(3, 4)))
def out_argument(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    torch.add(x, y, out=out)
    return out * 2


@cases(lambda: (plain(3, 4), plain(3, 4), plain(3, 4)))
def out_argument_returned(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    return torch.mul(x, y, out=out)


@cases(lambda: ([plain(3), plain(4)], [plain(3), plain(4)]))
def foreach_in_place(xs: list[Tensor], ys: list[Tensor]) -> Tensor:
    torch._foreach_add_(xs, ys, alpha=2)
    return xs[0].sum() + xs[1].sum()


@cases(lambda: ([tape(3), plain(4)],))
def list_of_inputs(xs: list[Tensor]) -> list[Tensor]:
    for x in xs:
        x.mul_(2)
    return [x + 1 for x in xs]


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


@cases(lambda: (plain(1, 4).expand(3, 4),), refused="single memory location")
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


@cases(lambda: (plain(2, 3), plain(2, 3)))
def swap_values(x: Tensor, y: Tensor) -> None:
    keep = x.clone()
    x.copy_(y)
    y.copy_(keep)


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
