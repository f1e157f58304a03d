"""Transforms of `torch.func` inside the traced function."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)

from tests.programs.program import Cases, leaf, plain

cases = Cases("transforms")

LAYER = nn.Linear(3, 4)

WRITABLE = frozenset({"write"})
"""Eager returns one of several views here, which it does not let anybody write to; ours stands alone."""


@cases(lambda: (plain(4),))
def gradient(x: Tensor) -> Tensor:
    return grad(lambda y: (y * y).sum())(x)


@cases(lambda: (leaf(4),), "inductor")
def gradient_differentiated(x: Tensor) -> Tensor:
    return grad(lambda y: y.sin().sum())(x) * x


@cases(lambda: (leaf(4),))
def gradient_of_gradient(x: Tensor) -> Tensor:
    return vmap(grad(grad(torch.sin)))(x)


@cases(lambda: (leaf(4), leaf(4)))
def gradient_and_value(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return grad_and_value(lambda a: (a * y).exp().sum())(x)


@cases(lambda: (leaf(4), leaf(4)))
def gradient_of_several(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return grad(lambda a, b: (a * b.cos()).sum(), argnums=(0, 1))(x, y)


@cases(lambda: (plain(4),))
def gradient_with_auxiliary(x: Tensor) -> tuple[Tensor, Tensor]:
    return grad(lambda y: (y.square().sum(), y + 1), has_aux=True)(x)


@cases(lambda: (leaf(5, 3), leaf(3)), "inductor")
def mapped(x: Tensor, y: Tensor) -> Tensor:
    return vmap(lambda row: (row * y).sum())(x)


@cases(lambda: (leaf(5, 3), leaf(3, 4)))
def mapped_over_both(x: Tensor, y: Tensor) -> Tensor:
    return vmap(vmap(torch.dot, (None, 1)), (0, None))(x, y)


@cases(lambda: (plain(5, 3),))
def mapped_with_a_write(x: Tensor) -> Tensor:
    def step(row: Tensor) -> Tensor:
        row = row.clone()
        row.add_(1).mul_(row)
        return row

    return vmap(step, out_dims=1)(x)


@cases(lambda: (plain(5, 3),))
def mapped_write_to_argument(x: Tensor) -> Tensor:
    return vmap(lambda row: row.add_(1))(x)


@cases(lambda: (plain(5, 3),))
def mapped_random(x: Tensor) -> Tensor:
    return vmap(lambda row: row + torch.randn_like(row), randomness="different")(x)


@cases(lambda: (plain(3), plain(3)))
def forward_mode(x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return jvp(torch.sin, (x,), (v,))


@cases(lambda: (leaf(3), leaf(3)))
def forward_mode_differentiated(x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return jvp(lambda y: y.sin() * y.sum(), (x,), (v,))


@cases(lambda: (leaf(3), plain(3)))
def vector_jacobian(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    found: Any = vjp(lambda y: y.exp() * y, x)
    return found[0], found[1](v)[0]


@cases(lambda: (plain(3),))
def reverse_jacobian(x: Tensor) -> Tensor:
    return jacrev(lambda y: y * y.sum())(x)


@cases(lambda: (leaf(3),), tolerated=WRITABLE)
def reverse_jacobian_differentiated(x: Tensor) -> Tensor:
    return jacrev(lambda y: y * y.sum())(x)


@cases(lambda: (leaf(3),), tolerated=WRITABLE)
def forward_jacobian(x: Tensor) -> Tensor:
    return jacfwd(lambda y: y * y.sum())(x)


@cases(lambda: (leaf(3),), tolerated=WRITABLE)
def second_derivatives(x: Tensor) -> Tensor:
    return hessian(lambda y: y.pow(3).sum() * y[0])(x)


@cases(lambda: (leaf(3, 4),))
def jacobian_of_normalised_rows(x: Tensor) -> Tensor:
    return jacrev(lambda y: nn.functional.layer_norm(y, (y.shape[-1],)))(x) * 2


@cases(lambda: (leaf(2, 3), leaf(4, 3), leaf(4)))
def functional_module(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional_call(LAYER, {"weight": weight, "bias": bias}, (x,))


@cases(lambda: (leaf(5, 3), leaf(4, 3), leaf(4)))
def gradients_per_sample(x: Tensor, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    def loss(params: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(LAYER, params, (row,)).square().sum()

    return vmap(grad(loss), (None, 0))({"weight": weight, "bias": bias}, x)


@cases(lambda: (leaf(3, 4),))
def autograd_grad_inside(x: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    return found * x


@cases(lambda: (leaf(3, 4),))
def functional_api_inside(x: Tensor) -> Tensor:
    return torch.autograd.functional.vjp(lambda y: y.sin() * y, x, torch.ones(3, 4), create_graph=True)[1]


@cases(lambda: (leaf(3),))
def linearized(x: Tensor) -> tuple[Tensor, Tensor]:
    value, along = linearize(lambda y: y.exp() * y.sum(), x)
    return value, along(x * 2)


@cases(lambda: (leaf(3, 4), plain(4)), "dynamic")
def linearized_and_called_twice(x: Tensor, w: Tensor) -> tuple[Any, ...]:
    value, along = linearize(lambda x, w: {"product": x * w, "sum": (x.sin() @ w,)}, x, w)
    x = x * 2
    return value, along(x, w), along(x.cos(), w.cos())


@cases(lambda: (leaf(3),))
def linearized_with_a_wrong_tangent(x: Tensor) -> Any:
    _, along = linearize(torch.sin, x)
    try:
        return along(x.sum())
    except RuntimeError:
        return x * 2


@cases(lambda: (leaf(3), leaf(3)), unsupported="linearize-free-variable")
def linearized_with_a_gradient_by_what_it_closes_over(x: Tensor, w: Tensor) -> Any:
    _, along = linearize(lambda y: y.sin() * w, x)
    return along(torch.ones_like(x))


@cases(lambda: (leaf(3), leaf(3)))
def linearized_around_what_needs_no_gradient(x: Tensor, w: Tensor) -> Any:
    constant = w.detach()
    value, along = linearize(lambda y: y.sin() * constant, x)
    return value, along(w.exp())


@cases(lambda: (leaf(3, 4),))
def linearized_with_dropout(x: Tensor) -> Any:
    """A mask for the value, one for torch's tracing, and one for the call of the map."""
    value, along = linearize(nn.functional.dropout, x)
    return value, along(x), torch.rand(3)


@cases(lambda: (plain(3),))
def linearized_with_noise(x: Tensor) -> Any:
    """The noise that is added has no part in the derivative."""
    value, along = linearize(lambda y: y * torch.rand_like(y) + torch.randn(3), x)
    return value, along(x), along(x.sin()), torch.rand(3)


@cases(lambda: (leaf(4), plain(4)), "dynamo")
def functionalized(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    def inner(x: Tensor, y: Tensor) -> Tensor:
        made = x.clone()
        made[1:].add_(y[1:])
        y.mul_(2)
        return made * 2

    return functionalize(inner)(x, y), y + 1
