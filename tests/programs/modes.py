"""Modes and context: grad mode changed by the function, autocast, torch.func inside."""

import torch
from torch import Tensor

from tests.programs.program import Cases, leaf, plain

cases = Cases("modes")


def autocast() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@cases(lambda: (leaf(3, 4),), later="grad mode changed by the function")
def grad_mode_left_off(x: Tensor) -> Tensor:
    out = x * 2
    torch.set_grad_enabled(False)
    return out


@cases(lambda: (leaf(3, 4),), context=torch.no_grad, later="grad mode changed by the function")
def grad_mode_left_on(x: Tensor) -> Tensor:
    torch.set_grad_enabled(True)
    return x * 2


@cases(lambda: (leaf(3, 4),))
def grad_mode_off_and_on(x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    quiet = x * 2
    torch.set_grad_enabled(True)
    return x * quiet


@cases(lambda: (leaf(3, 4), leaf(4, 5)), "inductor", context=autocast)
def under_autocast(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).relu()


@cases(lambda: (leaf(3, 4), leaf(4, 5)))
def autocast_inside(x: Tensor, w: Tensor) -> Tensor:
    with autocast():
        hidden = x @ w
    return hidden.float().sin()


@cases(lambda: (plain(3, 4), plain(4, 5)), context=autocast)
def under_autocast_without_gradients(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


@cases(lambda: (leaf(3, 4),), context=torch.inference_mode)
def under_inference_mode(x: Tensor) -> Tensor:
    return x * 2


@cases(lambda: (leaf(3, 4),), later="inference_mode inside")
def inference_mode_inside(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        quiet = x * 2
    return quiet, x * 3


@cases(lambda: (plain(4),), later="torch.func inside")
def func_grad_inside(x: Tensor) -> Tensor:
    return torch.func.grad(lambda y: (y * y).sum())(x)


@cases(lambda: (leaf(4),), later="torch.func inside")
def func_grad_inside_differentiable(x: Tensor) -> Tensor:
    return torch.func.grad(lambda y: y.sin().sum())(x) * x


@cases(lambda: (leaf(5, 3), leaf(3)), later="torch.func inside")
def vmap_inside(x: Tensor, y: Tensor) -> Tensor:
    return torch.func.vmap(lambda row: (row * y).sum())(x)


@cases(lambda: (plain(3), plain(3)), later="torch.func inside")
def jvp_inside(x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return torch.func.jvp(torch.sin, (x,), (v,))


@cases(lambda: (plain(3),), later="torch.func inside")
def jacobian_inside(x: Tensor) -> Tensor:
    return torch.func.jacrev(lambda y: y * y.sum())(x)


@cases(lambda: (leaf(3, 4),), context=torch.autograd.detect_anomaly, later="anomaly mode")
def under_anomaly_mode(x: Tensor) -> Tensor:
    return x * 2


@cases(lambda: (leaf(3, 4),), later="saved-tensor hooks")
def saved_tensor_hooks_inside(x: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t * 3):
        return x.sin()
