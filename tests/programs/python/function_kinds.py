"""Custom autograd functions, the rarer kinds: what they save, mark, return, and ask of their context."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("function_kinds")


class SavesOutputs(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.exp(), x.tanh()
        ctx.save_for_backward(first, second)
        return first, second

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        first, second = ctx.saved_tensors
        return grads[0] * first + grads[1] * (1 - second * second)


class SavesIntermediate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        hidden = x.sin()
        ctx.hidden = hidden
        ctx.factor = 3
        return hidden * ctx.factor

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.hidden * ctx.factor


class WithSetupContext(Function):
    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        return grads[0] * y * 2, grads[0] * x


class AsksForNeeds(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return grads[0] * y if wanted[0] else None, grads[0] * x * 5 if wanted[1] else None


class LeavesGradientsOut(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2 if grads[1] is None else grads[1] * 7


class InputBesideOther(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 3 + grads[1]


class DirtyBesideOther(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.mark_dirty(x)
        x.add_(y)
        return x, x * y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2 + grads[1], grads[0] + grads[1] * 3


class IndexOutput(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        values, at = x.sort()
        ctx.mark_non_differentiable(at)
        ctx.save_for_backward(at)
        return values, at

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (at,) = ctx.saved_tensors
        return torch.zeros_like(grads[0]).scatter(-1, at, grads[0] * 2)


class TwoViews(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[0], x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[1] * 2 + grads[0]


class TakesContainers(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: tuple[int, ...], name: str, nothing: None) -> Tensor:
        ctx.sizes = x.shape
        return x.reshape(sizes) * len(name)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].reshape(ctx.sizes) * 9, None, None, None


class UsesAnother(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return SavesIntermediate.apply(grads[0])


class NoTensorInput(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        ctx.mark_non_differentiable()
        return x.detach() * scale

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.scale, None


@cases(lambda: (leaf(3, 4),), "dynamo")
def outputs_saved(x: Tensor) -> Tensor:
    first, second = SavesOutputs.apply(x)
    return first * second


@cases(lambda: (leaf(3, 4),))
def one_of_two_outputs_used(x: Tensor) -> Tensor:
    return SavesOutputs.apply(x)[1]


@cases(lambda: (leaf(3, 4),))
def intermediate_on_the_context(x: Tensor) -> Tensor:
    return SavesIntermediate.apply(x) + 1


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def setup_context(x: Tensor, y: Tensor) -> Tensor:
    return WithSetupContext.apply(x, y)


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def needs_input_grad(x: Tensor, y: Tensor) -> Tensor:
    return AsksForNeeds.apply(x, y)


@cases(lambda: (leaf(3, 4),))
def gradients_not_materialised(x: Tensor) -> Tensor:
    first, _ = LeavesGradientsOut.apply(x)
    return first.sin()


@cases(lambda: (tape(3, 4),))
def input_returned_beside_other(x: Tensor) -> Tensor:
    first, second = InputBesideOther.apply(x)
    return first + second


@cases(lambda: (tape(3, 4),))
def input_returned_beside_other_as_results(x: Tensor) -> tuple[Tensor, Tensor]:
    return InputBesideOther.apply(x)


@cases(lambda: (tape(3, 4), leaf(3, 4)))
def marked_dirty_beside_other(x: Tensor, y: Tensor) -> Tensor:
    first, second = DirtyBesideOther.apply(x, y)
    return first * second.sin()


@cases(lambda: (tape(3, 4), leaf(3, 4)))
def marked_dirty_returned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return DirtyBesideOther.apply(x, y)


@cases(lambda: (plain(3, 4), leaf(3, 4)))
def marked_dirty_without_gradient_before(x: Tensor, y: Tensor) -> Tensor:
    return DirtyBesideOther.apply(x, y)[1]


@cases(lambda: (leaf(3, 4),))
def integer_output(x: Tensor) -> tuple[Tensor, Tensor]:
    values, at = IndexOutput.apply(x)
    return values * 2, at


@cases(lambda: (tape(3, 4),), tolerated=frozenset({"write"}))
def view_beside_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    return TwoViews.apply(x)


@cases(lambda: (leaf(3, 4),))
def arguments_that_are_no_tensors(x: Tensor) -> Tensor:
    return TakesContainers.apply(x, (4, 3), "abc", None)


@cases(lambda: (leaf(3, 4),))
def function_in_the_backward(x: Tensor) -> Tensor:
    return UsesAnother.apply(x)


@cases(lambda: (leaf(3, 4),))
def detached_inside(x: Tensor) -> Tensor:
    return NoTensorInput.apply(x, 2.0)


@cases(lambda: (leaf(3, 4),), context=torch.no_grad)
def under_no_grad(x: Tensor) -> Tensor:
    return SavesIntermediate.apply(x)


@cases(lambda: (plain(3, 4),))
def nothing_requires_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    return InputBesideOther.apply(x)


@cases(lambda: (leaf(3, 4),))
def applied_twice(x: Tensor) -> Tensor:
    return SavesIntermediate.apply(SavesIntermediate.apply(x))


class Apart(Function):
    """Two results, each of one argument; no gradient is made up for the one that is not used."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x.sin(), y.cos()

    @staticmethod
    def backward(ctx: Any, of_x: Any, of_y: Any) -> Any:
        return of_x, of_y


@cases(lambda: (tape(3, 4), leaf(3, 4)))
def no_gradient_for_what_is_not_used(x: Tensor, y: Tensor) -> Tensor:
    return Apart.apply(x, y)[1]
