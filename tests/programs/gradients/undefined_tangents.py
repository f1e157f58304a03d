"""Results of which a caller differentiates only some, where zeros for the rest would tell.

A custom function or a hook on the way sees None or zeros, or is not run at all; an infinite slope makes nan
of zeros, where eager computes nothing.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("undefined_tangents")


class First(Function):
    """No gradient for its second argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.saved_tensors[0], None


class OneMore(Function):
    """A gradient that is not linear in the one that arrives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2 + 1


class Tells(Function):
    """Tells None from zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * y * factor, x + y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        product, total = grads
        if product is None:
            return total * 7, None, None
        if total is None:
            return None, None, product * x.sin()
        return product * y + total, None, product * x + total


class Apart(Function):
    """Gives each of its arguments the gradient of one of its results."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        product, total = grads
        return (
            None if product is None else product * ctx.saved_tensors[1],
            None if total is None else total * 2,
        )


class Pair(Function):
    """Takes zeros for what is missing, which an infinite value turns into nan."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2 + grads[1] * float("inf")


class Ones(Function):
    """Gives a gradient that does not depend on the one that arrives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return torch.ones_like(grads[0])


@cases(lambda: (plain(4, 4), leaf(4, 4)), "dynamic", "dynamo", "inductor")
def what_a_function_gives_no_gradient_is_a_result(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x @ weight
    return hidden.t(), First.apply(x, hidden) * 2


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic")
def no_gradient_of_a_function_beside_another_way(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return First.apply(y, x.sin()), x.cos()


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic", "dynamo", "inductor")
def function_that_runs_for_one_result(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return OneMore.apply(x).sin(), x * y


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic")
def function_that_runs_with_none(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return First.apply(y, OneMore.apply(x)), x * y


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def function_that_tells_none_from_zeros(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    product, total = Tells.apply(x.sin(), 2.0, y)
    return product.exp(), total, x * 3


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def function_that_tells_behind_another(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    product, total = Tells.apply(OneMore.apply(x), 2.0, y.cos())
    return product, total * product


@cases(lambda: (leaf(3, 4), tape(3, 4)))
def function_that_tells_and_a_written_input(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    product, total = Tells.apply(x, 2.0, y)
    y.mul_(product)
    return total.view(-1), total[0]


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic")
def function_that_takes_zeros(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, second = Pair.apply(x * y)
    return first, second, y * 3


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic")
def function_that_gives_ones(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return Ones.apply(x), x * y


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic")
def hook_on_the_way_of_one_result(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * 2
    hidden.register_hook(lambda gradient: gradient + 1)
    return hidden.sin(), x * y


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic", "dynamo", "inductor")
def infinite_slope_of_one_result(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x - x.detach()).sqrt(), x * y


@cases(lambda: (leaf(4, 4), leaf(4, 4)), "dynamic", "dynamo", "inductor")
def infinite_slope_behind_parts(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, second = (x - x.detach()).sqrt().split(2)
    return first.exp(), second * 2, x * y


@cases(lambda: (leaf(4, 4), leaf(4, 4)), "dynamic", "dynamo")
def infinite_slope_of_a_part(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    first, second = (x * y).split(2)
    return (first - first.detach()).sqrt(), second * 2


@cases(lambda: (tape(3, 4), leaf(3, 4)), "dynamic", "dynamo")
def infinite_slope_of_a_written_input(x: Tensor, y: Tensor) -> Tensor:
    total = (x * y).sum()
    x.sub_(x.detach()).sqrt_()
    return total


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic", "dynamo")
def infinite_slope_behind_views_of_one(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    hidden = (x - x.detach()).sqrt()
    return hidden.view(-1), hidden[0], x * y


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def function_that_gives_none_for_none(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    product, total = Apart.apply(x, y)
    return product, total.sin(), x * 3


@cases(lambda: (tape(4, 4), leaf(4, 4)))
def function_that_tells_of_an_input_turned_after(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    product, total = Tells.apply(x * 1, 2.0, y)
    x.t_()
    return product.sin(), total


@cases(lambda: (tape(3, 4), plain(3, 4)))
def function_that_tells_beside_an_input_of_other_sizes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    product, total = Tells.apply(x * 1, 2.0, x * 3)
    x.mul_(2)
    y.unsqueeze_(0)
    return product, total


@cases(lambda: (tape(3, 4), plain(3, 4)))
def function_that_tells_beside_an_input_with_other_memory(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    product, total = Tells.apply(x, 2.0, x * y)
    y.data = y.data * 2
    return product, total.sin()
