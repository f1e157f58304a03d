"""Traceable wrapper subclasses: two tensors in one, distributed tensors, jagged tensors."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from tests.programs.program import Cases, leaf, plain

cases = Cases("subclasses")


def two(*sizes: int) -> Tensor:
    """A wrapper that needs no gradient."""
    return TwoTensor(plain(*sizes), plain(*sizes))


def two_leaf(*sizes: int) -> Tensor:
    """A wrapper that is a leaf and requires grad."""
    return two(*sizes).requires_grad_()


def two_tape(*sizes: int) -> Tensor:
    """A wrapper with a history."""
    return two_leaf(*sizes) * 2


class Beside(Tensor):
    """A wrapper whose operators call composite ones, and which keeps the sum of what they give."""

    v: Tensor
    beside: Tensor

    @staticmethod
    def __new__(cls: Any, v: Tensor) -> "Beside":
        made: Beside = torch.Tensor._make_wrapper_subclass(
            cls, v.shape, dtype=v.dtype, strides=v.stride(), requires_grad=v.requires_grad
        )
        made.v = v
        return made

    def __init__(self, v: Tensor) -> None:
        """What `__new__` is given."""

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["v"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: None, size: Any, stride: Any) -> "Beside":
        return Beside(inner["v"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's declaration lacks `func`
        cls, func: Any, types: Any, args: Any, kwargs: Any = None
    ) -> Any:
        bare = lambda value: value.v if isinstance(value, Beside) else value
        inner, keywords = pytree.tree_map(bare, (args, kwargs or {}))
        result = func(*inner, **keywords)
        if func is torch.ops.aten.mul.Tensor:
            result = nn.functional.linear(result, torch.eye(result.shape[-1]))

        def wrapped(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            made = Beside(value)
            made.beside = value.sum()
            return made

        return return_and_correct_aliasing(func, args, kwargs or {}, pytree.tree_map(wrapped, result))


def twice(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x


def with_view(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x.view(-1)


def and_inside(x: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor, and a wrapper with it inside."""
    return x, TwoTensor(x, plain(*x.shape))


@cases(lambda: (two(3, 4),), "dynamic", "inductor", "dynamo")
def inference(x: Tensor) -> Tensor:
    return x.sin() + 1


@cases(lambda: (two_leaf(3, 4),), "dynamic", "inductor", "dynamo")
def training(x: Tensor) -> Tensor:
    return (x * x).sin()


@cases(lambda: (two_leaf(3, 4), leaf(3, 4)), "dynamic", "inductor", "dynamo")
def mixed_with_plain(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * y.cos(), y.exp()


@cases(lambda: (two(3, 4),), "dynamo")
def mutated(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (two_tape(3, 4),))
def mutated_with_history(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@cases(lambda: (two_leaf(3, 4),))
def view_returned(x: Tensor) -> Tensor:
    return x.view(-1)


@cases(lambda: (two_leaf(3, 4),))
def returned(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x * 2


@cases(lambda: (two(3, 4), plain(3, 4)))
def both_mutated(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    y.mul_(2)
    return x * y


@cases(lambda: (two_leaf(3, 4),))
def mutated_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    return x * 3


@cases(lambda: (two_leaf(3, 4),))
def detached_mutated(x: Tensor) -> Tensor:
    x.detach().mul_(2)
    return x * 3


@cases(lambda: (two_tape(3, 4),))
def mutated_through_a_view(x: Tensor) -> Tensor:
    x.view(-1).mul_(2)
    return x + 1


@cases(lambda: (two_tape(3, 4),))
def view_of_mutated_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x.t(), x.sin()


@cases(lambda: (two_leaf(4, 3),))
def split_returned(x: Tensor) -> tuple[Tensor, ...]:
    return x.split(2)


@cases(lambda: (two_leaf(3, 4),))
def intermediate_and_its_view(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * 2
    return hidden, hidden.view(-1)


@cases(lambda: (two_leaf(3, 4),))
def views_of_an_intermediate(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * 2
    return hidden.t(), hidden.view(-1)


@cases(lambda: (two_leaf(3, 4),))
def detached_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.detach(), (x * 2).detach()


@cases(lambda: (two_leaf(3, 4), plain(3, 4)), "dynamic")
def made_inside(x: Tensor, y: Tensor) -> Tensor:
    return x * TwoTensor(y.sin(), y.cos())


@cases(lambda: (plain(3, 4), plain(3, 4)), "dynamic")
def made_of_plain_inputs(x: Tensor, y: Tensor) -> Tensor:
    return TwoTensor(x * 2, y * 3)


@cases(lambda: (plain(3, 4), plain(3, 4)))
def wrapped_inputs_returned(x: Tensor, y: Tensor) -> Tensor:
    return TwoTensor(x, y)


@cases(lambda: (two(3, 4),))
def inner_tensor_returned(x: Any) -> tuple[Tensor, Tensor]:
    return x.a, x.b * 2


@cases(lambda: (TwoTensor(two(3, 4), two(3, 4)),), "dynamic")
def nested_inference(x: Tensor) -> Tensor:
    return x.sin() * 2


@cases(lambda: (TwoTensor(two(3, 4), two(3, 4)).requires_grad_(), leaf(3, 4)), "dynamo")
def nested_training(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x * y).sin(), x.view(-1)


@cases(lambda: (TwoTensor(two(3, 4), plain(3, 4)).requires_grad_() * 2,))
def nested_unevenly_mutated(x: Tensor) -> Tensor:
    x.mul_(2)
    return x.sum()


@cases(lambda: (TwoTensor(plain(4, 3).t(), plain(4, 3).t()).requires_grad_(),), "dynamic")
def not_contiguous(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.t()


@cases(lambda: tuple(map(TwoTensor, plain(6).chunk(2), plain(6).chunk(2))))
def halves_of_one_storage(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y


@cases(lambda: (two_leaf(3, 4),))
def same_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x.sin()
    return hidden, hidden


@cases(lambda: twice(two_leaf(3, 4)))
def duplicate(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@cases(lambda: twice(two(3, 4)))
def duplicate_mutated(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x * y


@cases(lambda: with_view(two(3, 4)), later="aliased subclass inputs")
def aliases_mutated(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y.sum()


@cases(lambda: with_view(two_leaf(3, 4)))
def aliases(x: Tensor, y: Tensor) -> Tensor:
    return x.sin() + y.sum()


@cases(lambda: and_inside(plain(3, 4)), later="aliased-subclass-inputs")
def inside_another_mutated(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y


def same_inside_twice() -> tuple[Tensor]:
    inside = plain(3, 4)
    return (TwoTensor(inside, inside),)


@cases(same_inside_twice)
def one_tensor_inside_twice(x: Tensor) -> Tensor:
    return x * 3


@cases(same_inside_twice, later="aliased inputs that are mutated in the graph, but `x` is a tensor subclass")
def one_tensor_inside_twice_mutated(x: Tensor) -> Tensor:
    x.add_(2)
    return x * 3


@cases(lambda: (two(3, 4),), later="metadata-mutation-of-subclass")
def transposed_in_place(x: Tensor) -> Tensor:
    x.t_()
    return x + 1


@cases(lambda: (two_leaf(3, 4),))
def intermediate_transposed_in_place(x: Tensor) -> Tensor:
    hidden = x * 2
    hidden.t_()
    return hidden


@cases(lambda: (two_leaf(3, 4),), context=torch.no_grad)
def under_no_grad(x: Tensor) -> Tensor:
    return x.sin()


@cases(lambda: (two(3, 4),), context=torch.inference_mode)
def under_inference_mode(x: Tensor) -> Tensor:
    return x.sin() * x


@cases(lambda: (two_leaf(3, 4), two_leaf(3, 4)))
def concatenated(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y]).softmax(0)


@cases(lambda: ({"x": two_leaf(3, 4), "y": [leaf(3, 4)]},))
def in_containers(batch: dict[str, Any]) -> dict[str, Tensor]:
    return {"sum": batch["x"] + batch["y"][0], "product": batch["x"] * batch["y"][0]}


@cases(lambda: (two_leaf(3, 4),))
def gradient_of_one_result_only(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.cos().detach()


@cases(lambda: (plain(3, 4),), "dynamo")
class WithParameters(nn.Module):
    """Parameters and a buffer that are wrappers."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(two(4, 5))
        self.register_buffer("count", two(5))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x @ self.weight + self.count


@cases(lambda: (two_leaf(2, 3, 4, 4).to(memory_format=torch.channels_last),))
def channels_last(x: Tensor) -> Tensor:
    return x.sin()


@cases(lambda: (two_leaf(3, 4), two_leaf(3, 4)))
def several_differentiable(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x * y, x.sin(), y.sum()


@cases(lambda: (two(3, 4),))
def inner_tensor_mutated(x: Any) -> Tensor:
    x.a.mul_(2)
    return x + 1


@cases(lambda: (two_leaf(3, 4),))
def data_mutated(x: Tensor) -> Tensor:
    x.data.mul_(2)
    return x * 3


@cases(lambda: (two_tape(3, 4), two_leaf(3, 4)))
def one_without_gradient(x: Tensor, y: Tensor) -> Tensor:
    return y * 2


@cases(lambda: (leaf(3, 4),))
def wrapped_intermediate_mutated(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * 2
    wrapped = TwoTensor(hidden, hidden + 1)
    wrapped.add_(1)
    return hidden, wrapped


@cases(lambda: (two_tape(4, 4),))
def chunk_mutated(x: Tensor) -> Tensor:
    first, _ = x.chunk(2)
    first.mul_(2)
    return x + 1


@cases(lambda: (two(3, 4),))
def out_argument(x: Tensor) -> Tensor:
    result = torch.empty_like(x)
    torch.mul(x, x, out=result)
    return result


@cases(lambda: (two(3, 4), two(3, 4)))
def foreach_mutated(x: Tensor, y: Tensor) -> Tensor:
    torch._foreach_mul_([x, y], 2)
    return x + y


class Tripled(torch.autograd.Function):
    """A sine with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


@cases(lambda: (two_leaf(3, 4),))
def custom_function(x: Tensor) -> Any:
    return Tripled.apply(x)


@cases(lambda: (two(3, 4),), later="output-shares-inner-tensor")
def mutated_and_inner_tensor_returned(x: Any) -> Tensor:
    x.mul_(2)
    return x.a


@cases(lambda: (plain(3, 4), plain(3, 4)), later="a result inside a written wrapper")
def wrapped_inputs_mutated(x: Tensor, y: Tensor) -> Tensor:
    wrapped = TwoTensor(x, y)
    wrapped.mul_(2)
    return wrapped


@cases(lambda: (two_tape(3, 4),), later="requires-grad-of-subclass")
def detached_in_place(x: Tensor) -> Tensor:
    x.detach_()
    return x * 2


@cases(lambda: (two(3, 4),), later="requires-grad-of-subclass")
def made_to_require_grad(x: Tensor) -> Tensor:
    x.requires_grad_()
    return x * 2


@cases(lambda: (TwoTensor(two(3, 4), two(3, 4)), leaf(4)), "dynamic")
def some_of_what_is_wrapped_mutated(x: Any, w: Tensor) -> Tensor:
    x.a.mul_(2)
    x.b.a.add_(1)
    return x * w


@cases(lambda: (TwoTensor(two(3, 4), two(3, 4)),), "dynamic")
def what_a_nested_wrapper_wraps_returned(x: Any) -> tuple[Tensor, Tensor, Tensor]:
    return x.a, x.b.b[0], x[1:]


@cases(lambda: (Beside(plain(3, 4)).requires_grad_(),), "dynamic")
def composite_inside(x: Tensor) -> Tensor:
    return (x * 2).sin() + 1


@cases(lambda: (Beside(plain(3, 4)),))
def kept_beside(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden: Any = x * 2
    return hidden.beside + 1, hidden


@cases(lambda: (two_leaf(3, 4),), "dynamic")
def made_like_it(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.zeros_like(x) + x, x.new_ones(3), torch.full_like(x, 2.0) * x


@cases(lambda: (two_leaf(3, 4),))
def views_of_views_written(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x.sin()
    view = hidden.t()[1:]
    view.add_(1)
    hidden.view(-1)[2].mul_(3)
    return hidden, view


@cases(lambda: (leaf(3, 4),), "dynamic")
def nested_made_inside(x: Tensor) -> tuple[Tensor, Tensor]:
    wrapped = TwoTensor(TwoTensor(x * 2, x * 3), x * 4)
    doubled: Any = wrapped * 2
    doubled.a.b.add_(1)
    return doubled, doubled.a * 2


@cases(lambda: (two(3, 4),))
def taken_out_and_written(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden: Any = x * 2
    hidden.a.mul_(3)
    return hidden + 1, hidden.a * 1


class WeighedSquare(torch.autograd.Function):
    """Saves wrappers and a plain tensor, and gives a wrapper and another."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, w)
        return x * x * w, x.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return gradients[0] * x * 2 * w + gradients[1], (gradients[0] * x * x).sum(0)


@cases(lambda: (two_leaf(3, 4), two_leaf(4)), "dynamic")
def custom_function_that_saves_wrappers(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    squared, summed = WeighedSquare.apply(x.sin(), w)
    return squared * 2, summed


@cases(lambda: (two(3, 4),))
def made_under_inference_mode(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        quiet = x.sin()
    return quiet, x * 2
