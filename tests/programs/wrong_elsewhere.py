"""Programs on which released compilers were wrong, where no other file of the list has the case."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("wrong_elsewhere")


@cases(lambda: (plain(3, 4),), "inductor", "dynamic")
def written_through_contiguous(x: Tensor) -> Tensor:
    x.contiguous().add_(1)
    return x * 2


@cases(lambda: (tape(3, 4),))
def written_through_contiguous_of_non_leaf(x: Tensor) -> Tensor:
    x.contiguous().mul_(2)
    return x.sin()


@cases(lambda: (plain(3, 4),), "inductor")
def written_through_a_cast_to_the_same_type(x: Tensor) -> Tensor:
    x.to(torch.float32).mul_(2)
    return x + 1


@cases(lambda: (tape(3, 4),))
def written_through_dropout_switched_off(x: Tensor) -> Tensor:
    functional.dropout(x, 0.5, training=False).add_(1)
    return x * 2


@cases(lambda: (plain(3, 4), tape(3, 4)))
def written_through_expand_to_the_same_size(x: Tensor, y: Tensor) -> Tensor:
    y.expand_as(x).mul_(2)
    x.reshape(3, 4).add_(y.detach())
    return x * y


@cases(lambda: (plain(3, 4), plain(3, 4)), "inductor", "dynamic")
def inputs_swapped_by_copies(x: Tensor, y: Tensor) -> None:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)


@cases(lambda: (tape(3, 4), tape(3, 4)))
def inputs_swapped_by_copies_with_gradients(x: Tensor, y: Tensor) -> Tensor:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return x - y


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def leaves_swapped_under_no_grad(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)
    return x * 2 - y


@cases(lambda: (leaf(3, 4),))
def view_of_a_view_under_no_grad_returned_beside_its_base(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    with torch.no_grad():
        row = made.view(-1)[2:]
    return made, row


@cases(lambda: (leaf(4, 4),))
class DropoutInAChain(nn.Module):
    """Each value between is worth computing again under a small budget; a mask is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.dropout(self.first(x).relu(), 0.5)
        return functional.dropout(self.second(hidden).relu(), 0.5)
