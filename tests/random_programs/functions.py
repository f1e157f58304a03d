"""Custom autograd functions of random programs; their gradients are not what autograd would give."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.programs.python.functions import InputAndProduct as WithItself
from tests.programs.python.functions import InputAsItIs as Reversed
from tests.programs.python.functions import MarksDirty as Dirty
from tests.programs.python.functions import ViewReturned as Flat

__all__ = [
    "Dirty",
    "DirtyBoth",
    "Flat",
    "Halves",
    "KeepsResult",
    "Pair",
    "Partly",
    "Reversed",
    "Square",
    "WithItself",
    "WithMask",
]


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


class Halves(Function):
    """Two views of its argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.sizes = x.shape
        return x[:1], x[1:]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return torch.cat(grads).view(ctx.sizes) * 2


class KeepsResult(Function):
    """Saves its result, and takes gradients that did not arrive as they are."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        (out,) = ctx.saved_tensors
        return None if grads[0] is None else grads[0] * out * 2


class Partly(Function):
    """No gradient for its second argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (y,) = ctx.saved_tensors
        return grads[0] * y, None


class WithMask(Function):
    """A result that is not differentiable beside one that is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        mask = x > 0
        ctx.mark_non_differentiable(mask)
        ctx.mask = mask
        return x * 2, mask

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.mask


class DirtyBoth(Function):
    """Writes to two arguments."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.mark_dirty(x, y)
        return x.mul_(2), y.add_(1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 3, grads[1] * 2
