"""Views that custom autograd functions make of what they are given, beside other looks at the same memory."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("function_views")


class Flat(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.size = x.shape
        return x.view(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.view(ctx.size) * 5


class Reversed(Function):
    """Its argument as it is, with another gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class WithGradModeOn(Function):
    """A view that a function takes with grad mode on; its gradient is the function's all the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.size = x.shape
        with torch.enable_grad():
            return x.view(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.view(ctx.size) * 5


class FlatAndRow(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.size = x.shape
        return x.view(-1), x[0]

    @staticmethod
    def backward(ctx: Any, flat: Tensor, row: Tensor) -> Tensor:
        found = (flat.view(ctx.size) * 5).clone()
        found[0] += row
        return found


@cases(lambda: (leaf(3, 4),), "dynamic")
def beside_what_it_looks_at(x: Tensor) -> Any:
    hidden = x * 2
    return Flat.apply(hidden), hidden


@cases(lambda: (leaf(3, 4),))
def beside_a_view_of_it(x: Tensor) -> Any:
    flat = Flat.apply(x * 2)
    return flat.view(3, 4), flat, flat[1]


@cases(lambda: (leaf(3, 4),), "dynamic")
def argument_given_back_beside_it(x: Tensor) -> Any:
    hidden = x * 2
    return hidden, Reversed.apply(hidden)


@cases(lambda: (leaf(3, 4),), "dynamo")
def argument_given_back_beside_it_and_a_row(x: Tensor) -> Any:
    hidden = x * 2
    given_back = Reversed.apply(hidden)
    return hidden[0], given_back, hidden, given_back[1]


@cases(lambda: (leaf(3, 4),), "dynamo")
def argument_given_back_twice(x: Tensor) -> Any:
    hidden = x * 2
    return Reversed.apply(Reversed.apply(hidden)), hidden, Reversed.apply(hidden)


@cases(lambda: (leaf(3, 4),), "dynamo")
def input_given_back_beside_a_view(x: Tensor) -> Any:
    return Reversed.apply(x), x[0], x.sin()


@cases(lambda: (leaf(3, 4),), "dynamo")
def function_with_grad_mode_on_inside(x: Tensor) -> Any:
    hidden = x * 2
    return WithGradModeOn.apply(hidden), hidden


@cases(lambda: (leaf(3, 4),))
def several_beside_what_they_look_at(x: Tensor) -> Any:
    hidden = x * 2
    return (*FlatAndRow.apply(hidden), hidden)


@cases(lambda: (leaf(3, 4),))
def twice_of_one_memory(x: Tensor) -> Any:
    hidden = x * 2
    return Flat.apply(hidden), Flat.apply(hidden)


@cases(lambda: (leaf(3, 4),))
def beside_its_detached_self_and_a_row(x: Tensor) -> Any:
    hidden = x * 2
    flat = Flat.apply(hidden)
    return flat, flat.detach(), hidden[0]


@cases(lambda: (leaf(3, 4),))
def without_gradient_beside_what_it_looks_at(x: Tensor) -> Any:
    hidden = x * 2
    with torch.no_grad():
        flat = Flat.apply(hidden)
    return flat, hidden


@cases(lambda: (plain(3, 4),))
def of_what_needs_no_gradient(x: Tensor) -> Any:
    hidden = x * 2
    return Flat.apply(hidden), hidden, Reversed.apply(x)


@cases(lambda: (leaf(3, 4),), later="custom-view-then-write")
def of_what_is_written_to_after(x: Tensor) -> Any:
    hidden = x * 2
    flat = Flat.apply(hidden)
    hidden.add_(1)
    return flat, hidden


@cases(lambda: (tape(3, 4),), later="a view made in a custom `autograd.Function` of a tensor that is written")
def of_an_input_and_written_to_without_gradient(x: Tensor) -> Any:
    found = Reversed.apply(x)
    with torch.no_grad():
        found *= 2
    return found


@cases(lambda: (plain(3, 4), leaf(3, 4)), "dynamo")
def beside_an_input_that_is_given_its_memory(x: Tensor, y: Tensor) -> Tensor:
    hidden = y * 2
    with torch.no_grad():
        x.set_(hidden)  # type: ignore[call-overload]
    return Flat.apply(hidden)
