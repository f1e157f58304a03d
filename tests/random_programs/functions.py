"""Custom autograd functions of random programs; their gradients are not what autograd would give."""

from typing import Any

from torch import Tensor
from torch.autograd import Function

from tests.programs.functions import InputAsItIs as Reversed
from tests.programs.functions import MarksDirty as Dirty
from tests.programs.functions import ViewReturned as Flat

__all__ = ["Dirty", "Flat", "Pair", "Reversed", "Square"]


class Square(Function):
    """Saves its argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x * grads[0]


class Pair(Function):
    """Two results, of which either may stay unused."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x)
        return x * 2, x.sin()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * 3 + grads[1] * x
