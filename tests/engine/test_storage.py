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


def bytes_of(x: Tensor) -> int:
    return x.untyped_storage().nbytes()


def gives_memory_back(x: Tensor, y: Tensor) -> Tensor:
    out = x * y
    x.untyped_storage().resize_(0)
    return out


def gives_memory_back_by_operator(x: Tensor, y: Tensor) -> Tensor:
    out = x * y
    torch.ops.inductor.resize_storage_bytes_.default(x, 0)
    return out


@pytest.mark.parametrize("fn", [gives_memory_back, gives_memory_back_by_operator])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_storage_resized_to_zero(fn: Any, needs_grad: bool) -> None:
    y = torch.full((3,), 3.0, requires_grad=needs_grad)
    call = compiled(fn, torch.ones(3), y)
    x = torch.ones(3)
    out = call(x, y)
    assert (out.tolist(), bytes_of(x)) == ([3, 3, 3], 0)
    if needs_grad:  # the backward reads the memory as it is then, as in eager
        x.untyped_storage().resize_(12)
        x.data.fill_(5)
        out.sum().backward()
        assert y.grad is not None
        assert y.grad.tolist() == [5, 5, 5]


@pytest.mark.parametrize("needs_grad", [False, True])
def test_storage_resized_up_then_filled(needs_grad: bool) -> None:
    def gathers(x: Tensor, full: Tensor) -> Tensor:
        x.untyped_storage().resize_(12)
        with torch.no_grad():
            x.copy_(full)
        return x * full

    full = torch.full((3,), 2.0, requires_grad=needs_grad)
    x = torch.ones(3)
    x.untyped_storage().resize_(0)
    out = compiled(gathers, x, full)(x, full)
    assert (x.tolist(), bytes_of(x), out.tolist()) == ([2, 2, 2], 12, [4, 4, 4])


def test_storage_used_and_given_back_again() -> None:
    def gathers_and_frees(x: Tensor, full: Tensor) -> Tensor:
        x.untyped_storage().resize_(12)
        with torch.no_grad():
            x.copy_(full)
        out = x * full
        x.untyped_storage().resize_(0)
        return out

    full, x = torch.full((3,), 2.0), torch.ones(3)
    x.untyped_storage().resize_(0)
    out = compiled(gathers_and_frees, x, full)(x, full)
    assert (bytes_of(x), out.tolist()) == (0, [4, 4, 4])


def _whole_and_part() -> tuple[Tensor, Tensor]:
    whole = torch.arange(16.0)
    return whole, whole[:8].view(4, 2)


def _two_parts() -> tuple[Tensor, Tensor]:
    whole = torch.arange(16.0)
    return whole[:8], whole[4:]


@pytest.mark.parametrize("make", [_whole_and_part, _two_parts])
def test_storage_of_overlapping_inputs_given_back_after_a_write(make: Any) -> None:
    """As FSDP frees a flat parameter of which the module's parameters are views."""

    def writes_and_frees(one: Tensor, other: Tensor) -> Tensor:
        one.mul_(2)
        out = other + 1
        one.untyped_storage().resize_(0)
        return out

    given, wanted = make(), make()
    out = compiled(writes_and_frees, *make())(*given)
    assert torch.equal(out, writes_and_frees(*wanted))
    assert [(bytes_of(x), x._version) for x in given] == [(bytes_of(x), x._version) for x in wanted]


def test_storage_of_overlapping_inputs_made_then_filled_in_parts() -> None:
    def gathers(whole: Tensor, part: Tensor, new: Tensor) -> Tensor:
        part.untyped_storage().resize_(64)
        whole[8:] = 1.0
        part.copy_(new)
        return whole * 2

    def made() -> tuple[Tensor, Tensor]:
        whole, part = _whole_and_part()
        whole.untyped_storage().resize_(0)
        return whole, part

    given, new = made(), torch.full((4, 2), 3.0)
    out = compiled(gathers, *made(), new)(*given, new)
    assert torch.equal(out, gathers(*made(), new))
    assert (bytes_of(given[0]), given[1].tolist()) == (64, new.tolist())


def test_storage_made_under_changed_sizes() -> None:
    def gathers(x: Tensor, new: Tensor) -> Tensor:
        x.untyped_storage().resize_(48)
        x.t_()
        x.copy_(new)
        return x * 2

    def made() -> Tensor:
        x = torch.ones(3, 4)
        x.untyped_storage().resize_(0)
        return x

    x, new = made(), torch.rand(4, 3)
    assert torch.equal(compiled(gathers, made(), new)(x, new), new * 2)
    assert torch.equal(x, new)


def test_storage_resized_before_set() -> None:
    def fn(x: Tensor) -> Tensor:
        out = x * 2
        with torch.no_grad():
            torch.ops.inductor.resize_storage_bytes_.default(x, 0)
            x.set_(torch.ones(2))  # type: ignore[call-overload]
        return out

    x = torch.ones(3)
    alias = x.detach()
    out = compiled(fn, torch.ones(3))(x)
    assert (x.tolist(), bytes_of(alias), out.tolist()) == ([1, 1], 0, [2, 2, 2])


def used_before_set(x: Tensor) -> Tensor:
    out = x * 3
    with torch.no_grad():
        x.set_(x.data * 2)  # type: ignore[call-overload]
    return out


def used_around_set(x: Tensor) -> Tensor:
    return used_before_set(x) + x.sin()


def test_leaf_used_before_its_storage_is_exchanged() -> None:
    """`set_` gives a leaf a new place in autograd, so only `backward()` finds the uses before it."""
    eager, x = (torch.ones(3, requires_grad=True) for _ in range(2))
    used_before_set(eager).sum().backward()
    compiled(used_before_set, torch.ones(3, requires_grad=True))(x).sum().backward()
    assert eager.grad is not None
    assert x.grad is not None
    torch.testing.assert_close(x.grad, eager.grad)
    torch.testing.assert_close(x, eager)


def test_leaf_used_on_both_sides_of_an_exchange_is_refused() -> None:
    """One gradient would stand for two places: `torch.autograd.grad` finds one of them only."""
    with pytest.raises(UnsupportedError, match="`set_` of a leaf whose gradient comes from uses both"):
        compiled(used_around_set, torch.ones(3, requires_grad=True))
