"""Autograd: gradients, hooks and custom functions."""

from typing import Any

import torch
from torch import Tensor

import aotlens
from tests.unsupported.example import EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


@shows("attribute-of-input")
def attribute_of_an_argument() -> None:
    @aotlens.compile(options=EAGER)
    def mark(x: Tensor) -> Tensor:
        x.scale = 3.0  # type: ignore[attr-defined]
        return x * 2

    mark(torch.ones(3))


class Transposing(torch.autograd.Function):
    """A backward that transposes an argument in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Tensor) -> Tensor:
        ctx.state = state
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.state.t_()
        return gradient * 2, None


@shows("metadata-mutation-in-backward")
def transposed_in_the_backward() -> None:
    # the backward of `Transposing` calls `t_()` on its second argument
    @aotlens.compile(options=EAGER)
    def scale(x: Tensor, state: Tensor) -> Any:
        return Transposing.apply(x, state)

    scale(torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)).sum().backward()


@shows("side-effect-in-backward")
def norms_from_a_hook() -> None:
    norms: list[Tensor] = []

    @aotlens.compile(options=EAGER)
    def watched(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(lambda gradient: norms.append(gradient.norm()))
        return y.sin()

    watched(torch.ones(3, requires_grad=True))


@shows("functorch-transform")
def compiled_under_vmap() -> None:
    @aotlens.compile(options=EAGER)
    def scale(x: Tensor) -> Tensor:
        return x * 2

    torch.func.vmap(scale)(torch.ones(3, 2))


@shows("functionalize-outside")
def first_call_under_functionalize() -> None:
    @aotlens.compile(options=EAGER)
    def scale(x: Tensor) -> Tensor:
        return x * 2

    torch.func.functionalize(scale)(torch.ones(3))


class CountsInBackward(torch.autograd.Function):
    """Writes to an argument in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, calls: Tensor) -> Tensor:
        ctx.calls = calls
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.calls.add_(1)
        return gradient * 2, None


@shows("write-in-forward-and-backward")
def counter_of_another_shape() -> None:
    @aotlens.compile(options=EAGER)
    def count(x: Tensor, calls: Tensor) -> Tensor:
        calls.unsqueeze_(0)
        return CountsInBackward.apply(x, calls)

    count(torch.ones(3, requires_grad=True), torch.zeros(3)).sum().backward()


@shows("saved-under-hooks-then-written")
def a_result_that_is_scaled_after_it_was_packed() -> None:
    @aotlens.compile(options=EAGER)
    def scaled(x: Tensor) -> Tensor:
        return (x * 2).exp().mul_(3)

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda packed: packed):
        scaled(torch.ones(3, requires_grad=True))


@shows("lost-for-derivative")
def a_second_derivative_through_noise() -> None:
    @aotlens.compile(options=EAGER)
    def noisy(x: Tensor) -> Tensor:
        return (x + torch.rand(3)).sin()

    x = torch.ones(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(noisy(x).sum(), x, create_graph=True)
    gradient.sum().backward()
