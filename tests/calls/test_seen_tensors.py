"""Calls with tensors like those of an earlier call, for which one check in C++ is enough, and other calls."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens


def scaled(x: Tensor) -> Tensor:
    return x.t().reshape(-1) * 2


def compiled() -> Any:
    """A function whose first two calls took a `[2, 3]` tensor: the second one by the check in C++."""
    call: Any = aotlens.aot_function(scaled, aotlens.nop)
    for _ in range(2):
        torch.testing.assert_close(call(torch.ones(2, 3)), scaled(torch.ones(2, 3)))
    assert len(call.compiled) == 1
    return call


OTHERS: dict[str, Callable[[], Any]] = {
    "sizes": lambda: torch.rand(3, 2),
    "strides": lambda: torch.rand(3, 2).t(),
    "dtype": lambda: torch.rand(2, 3, dtype=torch.float64),
    "gradient": lambda: torch.rand(2, 3, requires_grad=True),
    "conjugated": lambda: torch.rand(2, 3, dtype=torch.complex64).conj(),
    "negative": lambda: torch._neg_view(torch.rand(2, 3)),
    "parameter": lambda: torch.nn.Parameter(torch.rand(2, 3), requires_grad=False),
    "inference tensor": lambda: torch.inference_mode()(torch.rand)(2, 3),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_tensor_of_another_kind_after_one_that_was_seen(kind: str) -> None:
    call, x = compiled(), OTHERS[kind]()
    expected = scaled(x)
    found = call(x)
    torch.testing.assert_close(found, expected)
    assert found.requires_grad == expected.requires_grad
    torch.testing.assert_close(call(torch.ones(2, 3)), scaled(torch.ones(2, 3)))


def test_a_tensor_that_grad_mode_let_through_is_asked_again() -> None:
    call, x = compiled(), torch.rand(2, 3, requires_grad=True)
    with torch.no_grad():
        for _ in range(3):
            assert not call(x).requires_grad
    (gradient,) = torch.autograd.grad(call(x).sum(), x)
    assert torch.equal(gradient, torch.full((2, 3), 2.0))


@pytest.mark.parametrize("mode", [torch.inference_mode, nullcontext])
def test_a_write_to_an_inference_tensor_after_a_write_to_another(mode: Callable[[], Any]) -> None:
    def write(x: Tensor, state: Tensor) -> Tensor:
        state.add_(x)
        return x * 2

    call, x = aotlens.aot_function(write, aotlens.nop), torch.ones(3)
    state = torch.zeros(3)
    with mode():
        for _ in range(2):
            call(x, state)
    assert (state.tolist(), state._version) == ([2.0, 2.0, 2.0], 2)
    with torch.inference_mode():
        other = torch.zeros(3)
        call(x, other)
    assert other.tolist() == [1.0, 1.0, 1.0]


def test_arguments_that_share_memory_after_some_that_did_not() -> None:
    def write(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x + y

    call = aotlens.aot_function(write, aotlens.nop)
    for _ in range(2):
        call(torch.ones(3), torch.ones(3))
    memory = torch.ones(6)
    assert call(memory[:3], memory[2:5]).tolist() == [4.0, 3.0, 3.0]


def test_the_same_tensor_given_twice_after_two() -> None:
    call = aotlens.aot_function(lambda x, y: x * y, aotlens.nop)
    for _ in range(2):
        call(torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True))
    x = torch.full((3,), 3.0, requires_grad=True)
    (gradient,) = torch.autograd.grad(call(x, x).sum(), x)
    assert gradient.tolist() == [6.0, 6.0, 6.0]


def test_a_tensor_that_a_transform_left_behind() -> None:
    left: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        left.append(x * 1)
        return x.sum()

    torch.func.grad(keep)(torch.ones(3))
    call = aotlens.aot_function(lambda x, y: x.sin() * y, aotlens.nop)
    call(torch.ones(3), torch.ones(3, requires_grad=True))
    for _ in range(3):
        result = call(torch.ones(3), left[0])
        torch.testing.assert_close(result, torch.ones(3).sin() * left[0])
        assert not result.requires_grad


def test_arguments_named_like_what_the_text_uses() -> None:
    def named(
        seen: Tensor, is_new: Tensor, apply: Tensor, apply_compiled: Tensor, tensors_like: Tensor
    ) -> Any:
        return seen + 2 * is_new + 3 * apply + 4 * apply_compiled + 5 * tensors_like

    tensors = [torch.full((2,), float(number), requires_grad=True) for number in range(5)]
    call: Any = aotlens.aot_function(named, aotlens.nop)
    for _ in range(2):
        result = call(*tensors)
    torch.testing.assert_close(result, named(*tensors))
    gradients = torch.autograd.grad(result.sum(), tensors)
    assert [gradient.tolist() for gradient in gradients] == [[float(n), float(n)] for n in range(1, 6)]
