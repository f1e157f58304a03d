"""Operators that are seen outside of their results: prints, effects that the user registers."""

from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Cases, leaf, plain

cases = Cases("effects")


@cases(lambda: (plain(3),), "inductor")
def prints(x: Tensor) -> Tensor:
    torch.ops.aten._print("before")
    y = x * 2
    torch.ops.aten._print("after")
    return y


@cases(lambda: (leaf(3),))
def prints_in_training(x: Tensor) -> Tensor:
    torch._higher_order_ops.print("value {}", x.detach().sum())
    return x.sin()


class PrintsInBackward(torch.autograd.Function):
    """Prints when its gradient arrives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        torch.ops.aten._print("forward")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        torch.ops.aten._print("backward")
        return gradient * 2


@cases(lambda: (leaf(3),), "inductor")
def prints_in_backward(x: Tensor) -> Tensor:
    return PrintsInBackward.apply(x.sin()) * 3


@cases(lambda: (leaf(3, 3),), "inductor")
def checks_for_errors(x: Tensor) -> Tensor:
    return torch.linalg.inv(x)


@cases(lambda: (plain(3), plain() > 0))
def prints_in_a_branch(x: Tensor, flag: Tensor) -> Any:
    def loud(y: Tensor) -> Tensor:
        torch.ops.aten._print("true")
        return y * 2

    return torch.cond(flag, loud, lambda y: y.sin(), (x,))


@cases(lambda: (leaf(3),))
def constants_in_the_function(x: Tensor) -> Tensor:
    table = torch.tensor([1.0, 2.0, 3.0])
    table.add_(torch.tensor(1.0))
    return x * table + torch.scalar_tensor(2.0)
