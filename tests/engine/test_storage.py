"""Writes in the backward and exchanged storages: what the program list cannot say; the words of refusals."""

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct

EAGER = CompileOptions(backend="eager")


def compiled(fn: Any, *args: Any) -> Any:
    return compile_direct(fn, args, {}, EAGER).call


@torch.library.custom_op("aotlens_test::clone_of", mutates_args={})
def clone_of(x: Tensor, state: Tensor) -> Tensor:
    return x.clone()


@clone_of.register_fake
def _(x: Tensor, state: Tensor) -> Tensor:
    return x.clone()


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.state = inputs[1]


def _zero_state(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    with torch.no_grad():
        ctx.state.zero_()
    return gradient * 2, None


clone_of.register_autograd(_zero_state, setup_context=_remember)


@pytest.mark.parametrize("needs_grad", [False, True])
def test_custom_operator_zeroes_an_input_in_the_backward(needs_grad: bool) -> None:
    def fn(x: Tensor, state: Tensor) -> Tensor:
        return clone_of(x, state)

    x, state = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=needs_grad)
    out = compiled(fn, x, state)(x, state)
    assert state.sum() == 3
    out.sum().backward()
    assert state.sum() == 0
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


class WritesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.saved_tensors[0].mul_(2)
        return grads[0].clone()


class MovesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Tensor) -> Tensor:
        ctx.state = state
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.state.unsqueeze_(0)
        return grads[0].clone(), None


def test_second_derivative_through_a_write_is_refused() -> None:
    def fn(x: Tensor) -> Tensor:
        return WritesInBackward.apply(x) * x

    x = torch.ones(3, requires_grad=True)
    out = compiled(fn, x)(x)
    with pytest.raises(
        RuntimeError, match="does not support input mutations with requires_grad in backward for"
    ):
        torch.autograd.grad(out.sum(), x, create_graph=True)


def test_metadata_mutation_in_the_backward_is_refused() -> None:
    x, state = torch.ones(3, requires_grad=True), torch.ones(3)
    with pytest.raises(AssertionError, match="is an input that had its metadata mutated in the backward"):
        compiled(MovesInBackward.apply, x, state)


def test_exchange_after_a_write_that_autograd_sees_is_refused() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(y)
        with torch.no_grad():
            x.set_(torch.ones(3))  # type: ignore[call-overload]
        return x * y

    with pytest.raises(AssertionError, match="but the input has other mutations that we cannot") as caught:
        compiled(fn, torch.ones(3), torch.ones(3, requires_grad=True))
    assert isinstance(caught.value, UnsupportedError)
    assert "x.set_(torch.ones(3))" in str(caught.value)


def test_swapped_storages() -> None:
    def swap(x: Tensor, y: Tensor) -> None:
        keep = x.detach()
        with torch.no_grad():
            x.set_(y)  # type: ignore[call-overload]
            y.set_(keep)  # type: ignore[call-overload]

    x, y = torch.zeros(2), torch.ones(3)
    first, second = x.data_ptr(), y.data_ptr()
    compiled(swap, torch.zeros(2), torch.ones(3))(x, y)
    assert (x.tolist(), y.tolist()) == ([1, 1, 1], [0, 0])
    assert (x.data_ptr(), y.data_ptr()) == (second, first)
