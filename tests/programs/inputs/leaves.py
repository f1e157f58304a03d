"""Leaves that the function makes itself, beside what shares their memory."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.programs.program import Cases, leaf, plain, tape
from tests.programs.python.functions import ViewReturned

cases = Cases("leaves")


@cases(lambda: (leaf(4, 4),), "dynamic")
def beside_what_it_was_detached_from(x: Tensor) -> Any:
    hidden = x * 2
    fresh = hidden.detach().requires_grad_()
    return fresh * 3, fresh, hidden


@cases(lambda: (leaf(4, 4),))
def beside_what_it_was_detached_from_and_never_used(x: Tensor) -> Any:
    hidden = x * 2
    return hidden.detach().requires_grad_(), hidden


@cases(lambda: (leaf(4, 4),), "dynamic")
def with_a_view_of_it(x: Tensor) -> Any:
    fresh = (x * 2).detach().requires_grad_()
    return fresh.view(-1), fresh


@cases(lambda: (leaf(4, 4),), "dynamic")
def with_a_view_of_it_and_what_it_was_detached_from(x: Tensor) -> Any:
    hidden = x * 2
    fresh = hidden.detach().requires_grad_()
    return fresh, fresh.view(-1), hidden, hidden[0]


@cases(lambda: (leaf(4, 4),))
def with_several_views_of_it(x: Tensor) -> Any:
    fresh = (x * 2).detach().requires_grad_()
    return fresh, *fresh.chunk(2)


@cases(lambda: (leaf(4, 4),))
def with_a_view_of_it_without_gradient(x: Tensor) -> Any:
    fresh = (x * 2).detach().requires_grad_()
    with torch.no_grad():
        flat = fresh.view(-1)
    return fresh, flat, fresh * 2


@cases(lambda: (plain(4, 4),))
def returned_twice(x: Tensor) -> Any:
    fresh = (x * 2).requires_grad_()
    return fresh, fresh, fresh * 2


@cases(lambda: (plain(4, 4),), "dynamic")
def of_an_input_with_a_view_of_it(x: Tensor) -> Any:
    fresh = x.detach().requires_grad_()
    return fresh, fresh.view(-1), fresh * 2, fresh


@cases(lambda: (leaf(4, 4),))
def of_an_input_that_requires_grad(x: Tensor) -> Any:
    fresh = x.detach().requires_grad_()
    return fresh, fresh[0], x * 2, fresh * 3


@cases(lambda: (tape(4, 4),))
def of_an_input_that_is_written_to(x: Tensor) -> Any:
    fresh = x.detach().requires_grad_()
    x.mul_(2)
    return fresh * 3, fresh, x


@cases(lambda: (plain(4, 4),))
def several_on_one_memory(x: Tensor) -> Any:
    hidden = x * 2
    one, other = hidden.detach().requires_grad_(), hidden.detach().requires_grad_()
    return one * other, one, other


@cases(lambda: (plain(4, 4),))
def several_on_parts_of_one_memory(x: Tensor) -> Any:
    hidden = x * 2
    one, other = hidden[:2].detach().requires_grad_(), hidden[2:].detach().requires_grad_()
    return one * other, one, other


@cases(lambda: (plain(4, 4),))
def what_it_was_detached_from_is_written_to(x: Tensor) -> Any:
    hidden = x * 2
    fresh = hidden.detach().requires_grad_()
    used = fresh * 3
    hidden.add_(1)
    return fresh, used, hidden


@cases(lambda: (plain(4, 4),))
def written_to_without_gradient(x: Tensor) -> Any:
    fresh = (x * 2).requires_grad_()
    used = fresh * 3
    with torch.no_grad():
        fresh.mul_(2)
    return fresh, used


@cases(lambda: (leaf(4, 4),), "dynamic")
def parameter_made_inside(x: Tensor) -> Any:
    hidden = x * 2
    weight = nn.Parameter(hidden)
    return weight * x, weight, hidden, nn.Parameter(x.detach() + 1)


@cases(lambda: (leaf(4, 4),))
def gradient_inside_by_it(x: Tensor) -> Any:
    hidden = x * 2
    fresh = hidden.detach().requires_grad_()
    (gradient,) = torch.autograd.grad((fresh * x).sum(), fresh, create_graph=True)
    return gradient, fresh, hidden


@cases(lambda: (leaf(4, 4),), later="a view of a leaf that the function makes")
def view_of_one_that_is_not_returned(x: Tensor) -> Any:
    hidden = x * 2
    return hidden.detach().requires_grad_().view(-1), hidden


@cases(lambda: (plain(4, 4),), later="a view of a leaf that the function makes")
def view_of_one_of_an_input_that_is_not_returned(x: Tensor) -> Any:
    return x.detach().requires_grad_().view(-1)


@cases(lambda: (leaf(4, 4),), "dynamic", "inductor")
def view_of_what_was_detached_from_an_input(x: Tensor) -> Any:
    fresh = x.detach().view(-1).requires_grad_()
    return fresh, fresh * 2, x * 3


@cases(lambda: (tape(4, 4),), "dynamic")
def view_of_what_was_detached_and_written_to(x: Tensor) -> Any:
    kept = x.detach()
    kept.mul_(2)
    fresh = kept.t()[1:]
    fresh.requires_grad_()
    return fresh, fresh.t(), fresh * 2, kept


@cases(lambda: (leaf(4, 4),))
def view_of_detached_data(x: Tensor) -> Any:
    kept = x.view(-1).data
    fresh = kept[2:].requires_grad_()
    return fresh, fresh.sin()


@cases(lambda: (plain(4, 4),))
def view_of_what_was_detached_from_a_view(x: Tensor) -> Any:
    fresh = x.t().detach().unbind(0)[1]
    fresh.requires_grad_()
    return fresh, fresh[1:], fresh * 2


@cases(lambda: (leaf(4, 4),), unsupported="custom-view-of-created-leaf")
def view_of_one_made_in_a_custom_function(x: Tensor) -> Any:
    fresh = x.detach().requires_grad_()
    return ViewReturned.apply(fresh), fresh


@cases(lambda: (plain(4, 4),))
def read_in_memory_that_is_written(x: Tensor) -> tuple[Tensor, Tensor]:
    fresh = nn.Parameter(x)
    result = fresh.sin()
    x.t().mul_(2)
    return result[1:], fresh


@cases(lambda: (plain(4, 4),))
def view_of_one_that_was_viewed_without_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    fresh = nn.Parameter(x)
    with torch.no_grad():
        view = fresh.t()
    return view.t(), fresh


@cases(lambda: (plain(4, 4),), unsupported="view-of-created-leaf")
def view_alone_of_one_that_was_viewed_without_grad(x: Tensor) -> Tensor:
    fresh = nn.Parameter(x)
    with torch.no_grad():
        view = fresh.t()
    return view.t()


@cases(lambda: (plain(4, 4),))
def view_of_other_memory_made_one(x: Tensor) -> Tensor:
    x.data = x.data * 2
    view = x.t()
    return view.requires_grad_()
