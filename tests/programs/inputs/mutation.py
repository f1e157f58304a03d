"""Data mutation of inputs: seen by autograd, hidden from it, under no_grad, and mixtures."""

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


@cases(lambda: (leaf(3, 4),), unsupported="leaf")
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
