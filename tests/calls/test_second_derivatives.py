"""Second and third derivatives of compiled functions, as eager's, and what they refuse."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

import aotlens
from aotlens.compiled import Compiled
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.torch_api.operators import pytree
from tests.programs.program import leaf, plain

EAGER = CompileOptions(backend="eager")


def compiled(fn: Callable[..., Any], *args: Any, options: CompileOptions = EAGER) -> Compiled:
    return compile_direct(fn, args, {}, options)


def derivatives(fn: Callable[..., Any], *args: Tensor, order: int = 3) -> list[tuple[Tensor | None, ...]]:
    """Gradients, gradients of a function of the gradients, and so on; `fn` may write to its arguments."""
    torch.manual_seed(0)
    inputs = [arg * 1 for arg in args]
    current, found = pytree.tree_leaves(fn(*inputs)), list[tuple[Tensor | None, ...]]()
    for _ in range(order):
        total = torch.stack([tensor.sin().sum() for tensor in current]).sum()
        found.append(torch.autograd.grad(total, args, create_graph=True, allow_unused=True))
        current = [tensor for tensor in found[-1] if tensor is not None]
    return found


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2


def written(x: Tensor, w: Tensor) -> Tensor:
    x.mul_(w)
    return x.sin() * w


def hidden_bases(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = (x * w).sin()
    return y.t(), y[0], y


OUTSIDE = torch.full((3, 4), 2.0, dtype=torch.float64, requires_grad=True)


TWICE_DIFFERENTIABLE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "product": lambda x, w: (x @ w.t()).sigmoid() * x.sum(),
    "input that is not saved": lambda x, w: (x + 1).sin() + w.exp(),
    "detached": lambda x, w: x * x.detach() + w,
    "part without gradients": lambda x, w: x * _quiet(w) * w,
    "custom function": lambda x, w: Straight.apply(x.sin()) * w,
    "mask": lambda x, w: nn.functional.relu(x * w) * w,
    "dropout": lambda x, w: nn.functional.dropout(x * w).sin() * w,
    "noise": lambda x, w: (x * w + torch.rand_like(x)) ** 3,
    "written input": written,
    "hidden bases": hidden_bases,
    "view of an input": lambda x, w: (x.view(-1), x * w),
    "several views": lambda x, w: (x * w).sin().unbind(),
    "tensor from outside": lambda x, w: (x * OUTSIDE).sin() * w,
    "statistics": lambda x, w: nn.functional.batch_norm(x, None, None, training=True) * w,
}


def double(x: Tensor) -> Tensor:
    return x.detach().double().requires_grad_()


def _quiet(w: Tensor) -> Tensor:
    with torch.no_grad():
        return w.cos()


@pytest.mark.rotates
@pytest.mark.parametrize("case", TWICE_DIFFERENTIABLE)
@pytest.mark.parametrize("policy", ["min-cut", "default"])
def test_second_and_third_derivatives(case: str, policy: str) -> None:
    fn, x, w = TWICE_DIFFERENTIABLE[case], double(leaf(3, 4)), double(leaf(3, 4))
    if (case, policy) == ("noise", "min-cut"):
        pytest.skip("refused: see below")
    call = compiled(fn, x * 1, w * 1, options=CompileOptions(backend="eager", policy=policy)).call
    torch.testing.assert_close(derivatives(call, x, w), derivatives(fn, x, w))


@pytest.mark.rotates
@pytest.mark.parametrize("case", ["product", "dropout", "written input", "hidden bases"])
@pytest.mark.parametrize("how", ["dynamic", "inductor"])
def test_second_derivatives_otherwise_compiled(case: str, how: str) -> None:
    fn, x, w = TWICE_DIFFERENTIABLE[case], double(leaf(3, 4)), double(leaf(3, 4))
    options = CompileOptions(backend="inductor" if how == "inductor" else "eager", dynamic=how == "dynamic")
    call = compiled(fn, x * 1, w * 1, options=options).call
    torch.testing.assert_close(derivatives(call, x, w, order=2), derivatives(fn, x, w, order=2))


def test_gradients_that_depend_on_nothing_have_no_history() -> None:
    x = leaf(3)
    for fn in (linear := lambda x: x * 2, compiled(linear, x).call):
        (gradient,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        assert not gradient.requires_grad


def test_an_input_that_is_gone_is_refused_by_name() -> None:
    x = leaf(3)
    call = compiled(lambda hidden: hidden * 2, x * 1).call
    with pytest.raises(RuntimeError, match="the input `hidden` was freed or written to since the call"):
        torch.autograd.grad(call(x * 1).sum(), x, create_graph=True)


def test_gradient_penalty_of_a_module() -> None:
    module, x = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)), leaf(3, 4)
    weights = list(module.parameters())

    def penalty(fn: Callable[..., Any]) -> Sequence[Any]:
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        return torch.autograd.grad((first.norm() - 1).square(), weights, allow_unused=True)

    torch.testing.assert_close(penalty(compiled(module, x).call), penalty(module))


def test_second_derivative_that_needs_random_numbers_names_the_function() -> None:
    def noisy(x: Tensor) -> Tensor:
        return (x + torch.rand(3)).sin()

    x = leaf(3)
    with pytest.raises(RuntimeError, match=r"`noisy` was itself differentiated.*the random numbers of"):
        derivatives(compiled(noisy, x * 1).call, x)


def test_second_derivative_after_an_input_changed() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return (x + y).sin()

    x, y = leaf(3), plain(3)
    out = compiled(fn, x, y).call(x, y)
    y.add_(1)
    (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"`y` was freed or written to since the call"):
        gradient.sum().backward()


@pytest.mark.parametrize("policy", ["min-cut", "default"])
@pytest.mark.parametrize("fn", [lambda x, y: (x + y).sin(), lambda x, y: (y.t().exp().t() * x).exp()])
def test_an_input_that_eager_does_not_keep_may_be_written_to_before_the_backward(
    fn: Callable[..., Any], policy: str
) -> None:
    x, options = leaf(3, 4), CompileOptions(backend="eager", policy=policy)
    gradients = []
    for call in (fn, compiled(fn, x, plain(3, 4), options=options).call):
        y = plain(3, 4).fill_(2)
        out = call(x, y)
        y.zero_()
        gradients.append(torch.autograd.grad(out.sum(), x)[0])
    torch.testing.assert_close(*gradients)


def nothing(gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    forward: Callable[..., Any] = gm.forward
    return forward


def test_transform_around_a_compiled_backward() -> None:
    x = leaf(3)
    out = compiled(torch.sin, x, options=CompileOptions(backend=nothing)).call(x)
    with pytest.raises(RuntimeError, match="call a compiled backward function within vmap/grad/vjp"):
        torch.func.vmap(lambda v: torch.autograd.grad(out, x, v))(torch.eye(3))
    with pytest.raises(RuntimeError, match="call a compiled backward function within vmap/grad/vjp"):
        torch.autograd.grad(out, x, torch.eye(3), is_grads_batched=True)


def test_transform_around_the_graphs_own_text() -> None:
    x = leaf(3)
    out = compiled(torch.sin, x).call(x)
    (found,) = torch.func.vmap(lambda v: torch.autograd.grad(out, x, v))(torch.eye(3))
    torch.testing.assert_close(found, torch.diag(x.cos()).detach())


def cubed(x: Tensor) -> Tensor:
    return (x**3).sin()


def cubed_beside_its_transpose(x: Tensor) -> tuple[Tensor, Tensor]:
    made = cubed(x)
    return made.t() * x.t(), made.sum()


@pytest.mark.parametrize("fn", [cubed, cubed_beside_its_transpose])
def test_several_gradients_at_once_are_differentiable(fn: Callable[..., Any]) -> None:
    def first_and_second(call: Callable[..., Any]) -> list[Tensor]:
        x = (torch.arange(9.0).view(3, 3) / 9).requires_grad_()
        first: Any = jacobian(call, x, create_graph=True, vectorize=True)
        found = list(pytree.tree_leaves(first))
        return [*found, *torch.autograd.grad(torch.stack([(one**2).sum() for one in found]).sum(), x)]

    found = first_and_second(aotlens.compile(fn, options=EAGER))
    torch.testing.assert_close(found, first_and_second(fn))
