"""What requires grad, where gradients flow, and custom autograd functions."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from tests.programs.program import Cases, Fixed, ints, leaf, plain, tape

cases = Cases("autograd")


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamo", "dynamic")
def product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def one_requires_grad(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@cases(lambda: (plain(3, 4), plain(3, 4)), "dynamo", "dynamic")
def none_requires_grad(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def unused_input(x: Tensor, y: Tensor) -> Tensor:
    return x * 2


@cases(lambda: (leaf(3, 4),))
def detached_output(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, (x * 3).detach()


@cases(lambda: (leaf(3, 4),))
def only_detached_output(x: Tensor) -> Tensor:
    return (x * 3).detach()


@cases(lambda: (leaf(3, 4),))
def output_under_no_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        quiet = x * 3
    return x * 2, quiet


@cases(lambda: (leaf(3, 4),))
def all_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 3


@cases(lambda: (leaf(3, 4),), context=torch.no_grad)
def enable_grad_inside_no_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        loud = x * 3
    return x * 2, loud


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def mixed_outputs(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x * 2, y * 2, (x > 0)


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def one_output_ignores_one_input(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, y * 3


@cases(lambda: (leaf(3, 4),))
def integer_output(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.max(dim=1)


@cases(lambda: (leaf(3, 4),))
def detached_in_the_middle(x: Tensor) -> Tensor:
    return x * (x * 2).detach()


@cases(lambda: (leaf(3, 4),))
def output_made_to_require_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    fresh = (x * 2).detach().requires_grad_()
    return fresh, x * 3


@cases(lambda: (leaf(3, 4),))
def gradient_inside(x: Tensor) -> Tensor:
    (inner,) = torch.autograd.grad(x.sin().sum(), x)
    return inner * 2


@cases(lambda: (leaf(3, 4),))
def gradient_of_gradient_inside(x: Tensor) -> Tensor:
    (inner,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    return inner * x


@cases(lambda: (plain(3, 4),))
def gradient_of_fresh_leaf_inside(x: Tensor) -> Tensor:
    fresh = x.detach().requires_grad_()
    (inner,) = torch.autograd.grad((fresh * fresh).sum(), fresh)
    return inner


@cases(lambda: (leaf(3, 4),))
def constant_output(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, torch.ones(2)


@cases(lambda: (leaf(3, 4),))
def zero_gradient(x: Tensor) -> Tensor:
    return x * 0 + x.round()


@cases(lambda: (leaf(3, 4), ints(3)))
def gather(x: Tensor, index: Tensor) -> Tensor:
    return x[torch.arange(3), index]


@cases(lambda: (leaf(5, 4), ints(3, below=5)), "dynamo")
def index_select(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index).softmax(-1)


@cases(lambda: (leaf(3, 4), leaf(4, 5), leaf(5)), "inductor", "dynamic")
def linear_relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.relu(torch.addmm(b, x, w)).sum(-1)


@cases(lambda: (leaf(2, 3, 4), leaf(2, 4, 5)), "dynamic")
def batched_matmul(x: Tensor, y: Tensor) -> Tensor:
    return torch.bmm(x, y).logsumexp(-1)


@cases(lambda: (leaf(3, 4),), "dynamo")
def cos_chain(x: Tensor) -> Tensor:
    return x.cos().cos().cos().cos()


@cases(lambda: (leaf(3, 4), leaf(3, 4), leaf(3, 4)), "dynamic")
def cat_and_matmul(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return torch.cat([x, y, z]) @ torch.cat([x, y, z]).t()


@cases(lambda: (leaf(3, 4),), "dynamic")
def sum_saves_sizes(x: Tensor) -> Tensor:
    return x.sum()


@cases(lambda: (leaf(2, 3, Fixed(4)), leaf(Fixed(4)), leaf(Fixed(4))), "dynamo", "dynamic")
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, (4,), weight, bias)


@cases(lambda: (leaf(2, 4, 8), leaf(2, 4, 8), leaf(2, 4, 8)), "dynamo")
def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@cases(lambda: (leaf(6, 5), ints(6, below=5)), "inductor")
def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(logits, labels)


@cases(lambda: (leaf(2, 3, 8, 8), leaf(4, 3, 3, 3)), "dynamo")
def convolution(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x, w, padding=1).relu()


@cases(lambda: (leaf(3),))
def half_precision_cast(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16) * 2


@cases(lambda: (torch.randn(3, dtype=torch.float64, requires_grad=True),))
def double_precision(x: Tensor) -> Tensor:
    return x.exp().log1p()


@cases(lambda: (torch.randn(3, dtype=torch.complex64, requires_grad=True),))
def complex_product(x: Tensor) -> Tensor:
    return (x * x.conj()).real


@cases(lambda: (leaf(),))
def scalar(x: Tensor) -> Tensor:
    return x * x


@cases(lambda: (leaf(0, 4),))
def zero_size(x: Tensor) -> Tensor:
    return x.sum(0) + x.mean()


@cases(lambda: (leaf(3, 4),))
def tensor_constant(x: Tensor) -> Tensor:
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0])


@cases(lambda: (leaf(3, 4),))
def scalar_constant(x: Tensor) -> Tensor:
    return x * torch.tensor(2.5) + torch.arange(4)


@cases(lambda: (leaf(3, 4),))
def nan_gradient(x: Tensor) -> Tensor:
    return (x * 0).sqrt()


@cases(lambda: (leaf(4, 3).t(),))
def non_leaf_argument_that_is_a_view(x: Tensor) -> Tensor:
    return x * x


@cases(lambda: (leaf(4, 3),))
def backward_through_view_of_transposed(x: Tensor) -> Tensor:
    return (x.t().contiguous() * 2).view(-1).t()


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def where_and_masks(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x > 0, x, y * 2).masked_fill(y > 1, 0.0)


@cases(lambda: (tape(3, 4),))
def tape_beside_mutation(x: Tensor) -> Tensor:
    kept = x.sigmoid()
    x.mul_(2)
    return kept * x


class Doubled(Function):
    """A gradient that is not the derivative shows that the custom backward ran."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 5


class SavesAll(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, power: int) -> Tensor:
        out = (x * y).exp()
        ctx.save_for_backward(x, y, out)
        ctx.power = power
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y, out = ctx.saved_tensors
        return grads[0] * out * y * ctx.power, grads[0] * out * x, None


class InputAsItIs(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 3


class ViewReturned(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.sizes = x.shape
        return x.view(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].view(ctx.sizes) * 3


class NonDifferentiable(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        mask = x > 0
        ctx.mark_non_differentiable(mask)
        ctx.save_for_backward(mask)
        return x * 2, mask

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (mask,) = ctx.saved_tensors
        return grads[0] * mask


class MarksDirty(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 7


class OnceDifferentiable(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.saved_tensors[0].cos() * 2


class NoneGradient(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


class MutatesSavedInput(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Tensor) -> Tensor:
        ctx.save_for_backward(state)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (state,) = ctx.saved_tensors
        state.add_(1)
        return grads[0] * state, None


class MutatesInput(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Tensor) -> Tensor:
        state.mul_(2)
        return x * state.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 3, None


@cases(lambda: (leaf(3, 4),), "inductor", "dynamic")
def function_with_changed_gradient(x: Tensor) -> Tensor:
    return Doubled.apply(x) * 2


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def function_that_saves_all(x: Tensor, y: Tensor) -> Tensor:
    return SavesAll.apply(x, y, 3)


@cases(lambda: (tape(3, 4),))
def function_returning_its_input(x: Tensor) -> Tensor:
    return InputAsItIs.apply(x) * 2


@cases(lambda: (tape(3, 4),), later="custom function view")
def function_returning_its_input_as_output(x: Tensor) -> Tensor:
    return InputAsItIs.apply(x)


@cases(lambda: (tape(3, 4),), later="custom function view")
def function_returning_a_view(x: Tensor) -> Tensor:
    return ViewReturned.apply(x)


# Eager refuses to change a custom function's view in place; ours is no view and allows it.
@cases(lambda: (leaf(3, 4),), tolerated=frozenset({"write"}))
def function_returning_a_view_of_intermediate(x: Tensor) -> Tensor:
    return ViewReturned.apply(x * 2)


@cases(lambda: (leaf(3, 4),))
def function_with_non_differentiable_output(x: Tensor) -> tuple[Tensor, Tensor]:
    return NonDifferentiable.apply(x)


@cases(lambda: (tape(3, 4),))
def function_marking_dirty(x: Tensor) -> Tensor:
    return MarksDirty.apply(x) + 1


@cases(lambda: (leaf(3, 4),))
def function_marking_intermediate_dirty(x: Tensor) -> Tensor:
    return MarksDirty.apply(x * 2) + 1


@cases(lambda: (leaf(3, 4),))
def function_once_differentiable(x: Tensor) -> Tensor:
    return OnceDifferentiable.apply(x)


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def function_with_none_gradient(x: Tensor, y: Tensor) -> Tensor:
    return NoneGradient.apply(x, y)


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def function_mutating_an_input(x: Tensor, state: Tensor) -> Tensor:
    return MutatesInput.apply(x, state)


@cases(lambda: (leaf(3, 4), plain(3, 4)), later="mutation in the backward")
def function_mutating_in_backward(x: Tensor, state: Tensor) -> Tensor:
    return MutatesSavedInput.apply(x, state)


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def function_inside_larger_graph(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    hidden = SavesAll.apply(x.sin(), y, 2)
    return Doubled.apply(hidden) @ y.t(), hidden.mean()
