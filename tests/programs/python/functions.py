"""Custom autograd functions: traced through, forward and backward."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("functions")


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


class InputAndProduct(Function):
    """Its argument as it is, beside something computed from it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 5 + grads[1]


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


class ComplexFactor(Function):
    """The backward does not take the real part, which autograd refuses."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return grads[0] * factor.conj(), None


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


class ScalesInBackward(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        x.mul_(2)
        return grads[0].clone()


class MutatesGradient(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grads[0].mul_(2)
        return grads[0].clone()


class MutatesInput(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Tensor) -> Tensor:
        state.mul_(2)
        return x * state.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 3, None


class CountsBothWays(Function):
    """The state is reached past autograd, as a layer's statistics are."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Tensor) -> Tensor:
        state.add_(1)
        ctx.state = state
        return x * state

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.state[0].mul_(2)
        ctx.state.add_(grads[0].sum())
        return grads[0] * ctx.state, None


class SavesAndCounts(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Tensor) -> Tensor:
        state.add_(1)
        ctx.save_for_backward(state)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (state,) = ctx.saved_tensors
        state.add_(grads[0])
        return grads[0] * state, None


class ReadsWhatItChanged(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Tensor) -> Tensor:
        state.mul_(2)
        ctx.state = state
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.state, None


@cases(lambda: (leaf(3, 4), plain(3, 4)), "inductor", "dynamic")
def function_mutating_both_ways(x: Tensor, state: Tensor) -> Tensor:
    return CountsBothWays.apply(x, state)


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def function_mutating_both_ways_twice(x: Tensor, state: Tensor) -> Tensor:
    return CountsBothWays.apply(CountsBothWays.apply(x, state), state).sin()


@cases(lambda: (leaf(4), plain(3, 4)))
def function_mutating_a_view_both_ways(x: Tensor, state: Tensor) -> Tensor:
    return CountsBothWays.apply(x, state[:2])


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def function_mutating_both_ways_and_then_written(x: Tensor, state: Tensor) -> Tensor:
    out = CountsBothWays.apply(x, state)
    state.mul_(3)
    return out


@cases(lambda: (leaf(3, 4), plain(3, 4)), "dynamic")
def function_mutating_saved_both_ways(x: Tensor, state: Tensor) -> Tensor:
    return SavesAndCounts.apply(x, state)


@cases(lambda: (leaf(3, 4), plain(3, 4)), "inductor")
def function_reading_in_backward_what_it_changed(x: Tensor, state: Tensor) -> Tensor:
    return ReadsWhatItChanged.apply(x, state)


def _whole_and_row() -> tuple[Tensor, Tensor, Tensor]:
    state = plain(3, 4)
    return leaf(4), state, state[1]


@cases(_whole_and_row)
def function_mutating_overlapping_both_ways(x: Tensor, state: Tensor, row: Tensor) -> Tensor:
    return CountsBothWays.apply(x, row) + state.sum()


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def hook_that_counts_in_what_the_forward_changed(x: Tensor, state: Tensor) -> Tensor:
    state.add_(1)
    hidden = x * 2

    def count(gradient: Tensor) -> Tensor:
        state.add_(gradient)
        return gradient * state

    hidden.register_hook(count)
    return hidden.sin()


@cases(lambda: (leaf(3, 4),), "inductor", "dynamic")
def function_with_changed_gradient(x: Tensor) -> Tensor:
    return Doubled.apply(x) * 2


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def function_that_saves_all(x: Tensor, y: Tensor) -> Tensor:
    return SavesAll.apply(x, y, 3)


@cases(lambda: (tape(3, 4),))
def function_returning_its_input(x: Tensor) -> Tensor:
    return InputAsItIs.apply(x) * 2


@cases(lambda: (tape(3, 4),), "dynamic", "dynamo")
def function_returning_its_input_as_output(x: Tensor) -> Tensor:
    return InputAsItIs.apply(x)


@cases(lambda: (tape(3, 4),), "dynamic")
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


@cases(lambda: (leaf(3, 4), torch.view_as_complex(plain(3, 4, 2))), "dynamic")
def function_with_a_complex_gradient_of_a_real_input(x: Tensor, y: Tensor) -> Tensor:
    return ComplexFactor.apply(x, y)


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def function_mutating_an_input(x: Tensor, state: Tensor) -> Tensor:
    return MutatesInput.apply(x, state)


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def function_mutating_in_backward(x: Tensor, state: Tensor) -> Tensor:
    return MutatesSavedInput.apply(x, state)


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def function_mutating_leaf_in_backward(x: Tensor, y: Tensor) -> Tensor:
    return x * ScalesInBackward.apply(y)


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def function_mutating_in_backward_not_run(x: Tensor, y: Tensor) -> Tensor:
    return x * ScalesInBackward.apply(y)


@cases(lambda: (leaf(3, 4),))
def function_mutating_incoming_gradient(x: Tensor) -> Tensor:
    return MutatesGradient.apply(x) * 2


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def function_inside_larger_graph(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    hidden = SavesAll.apply(x.sin(), y, 2)
    return Doubled.apply(hidden) @ y.t(), hidden.mean()


@cases(lambda: (tape(3, 4),))
def function_that_saves_a_view_of_what_was_written(x: Tensor) -> Tensor:
    """Autograd makes the history of the view anew where the backward asks for what it saved."""
    flat = x.view(-1)
    with torch.no_grad():
        x.add_(1)
    return SavesAll.apply(flat, flat, 2)


class SavesBoth(Function):
    """Its arguments are checked for changes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        return grads[0] * y, grads[0] * x


class KeepsBoth(Function):
    """Its arguments are found as they are by then."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.x, ctx.y = x, y
        return x * y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.y, grads[0] * ctx.x


@cases(lambda: (leaf(3, 4), plain(3, 4)), "dynamo", "dynamic")
def function_that_saves_what_is_written_then(x: Tensor, y: Tensor) -> Tensor:
    out = SavesBoth.apply(x, y)
    y.mul_(2)
    return out


@cases(lambda: (leaf(3, 4), plain(3, 4)), "dynamo", "inductor")
def function_that_keeps_what_is_written_then(x: Tensor, y: Tensor) -> Tensor:
    out = KeepsBoth.apply(x, y)
    y.mul_(2)
    return out


@cases(lambda: (leaf(3, 4), plain(4, 3)), "dynamo")
def function_that_keeps_a_view_of_what_is_written_then(x: Tensor, y: Tensor) -> Tensor:
    out = KeepsBoth.apply(x, y.t())
    y.mul_(2)
    return out


@cases(lambda: (leaf(3, 4), plain(3, 4)), "dynamo", "inductor")
def functions_that_save_and_keep_what_is_written_then(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    hidden, other = y * 2, y * 3
    saved, kept = SavesBoth.apply(x, hidden), KeepsBoth.apply(x, other)
    other.mul_(2)
    return saved, kept, hidden, other


@cases(lambda: (leaf(3, 4), plain(3, 4)), "dynamo")
def function_that_saves_what_is_written_beside_another(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    hidden = y * 2
    out = SavesBoth.apply(x, hidden)
    hidden.mul_(2)
    return out, x.sin()
