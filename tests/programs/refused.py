"""What cannot be traced, or belongs to later work: refused by name, or as eager, never wrong in silence."""

from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Cases, leaf, plain

cases = Cases("refused")


@cases(lambda: (plain(3),), later="numpy")
def through_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() * 2)


@cases(lambda: (plain(3),), later="raises")
def raises(x: Tensor) -> Tensor:
    raise ValueError("no such thing")


@cases(lambda: (plain(3), plain(4)), later="raises")
def shapes_do_not_fit(x: Tensor, y: Tensor) -> Tensor:
    return x + y


@cases(lambda: (plain(3).to_sparse(),), later="sparse tensor")
def sparse_argument(x: Tensor) -> Tensor:
    return x.to_dense() * 2


@cases(lambda: (leaf(3),))
def tensor_hook(x: Tensor) -> Tensor:
    hidden = x * 2
    hidden.register_hook(lambda gradient: gradient * 3)
    return hidden.sin()


@cases(lambda: (leaf(3),))
def backward_inside(x: Tensor) -> Any:
    fresh = x.detach().requires_grad_()
    (fresh * fresh).sum().backward()
    return fresh.grad


@cases(lambda: (leaf(3),))
def retain_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * 2
    hidden.retain_grad()
    return hidden, hidden.sin()


@cases(lambda: (torch.nested.nested_tensor([plain(2), plain(3)], layout=torch.jagged),), later="subclass")
def nested_tensor(x: Tensor) -> Tensor:
    return x * 2


@cases(lambda: (plain(3).to("meta"),), later="meta tensor")
def meta_tensor(x: Tensor) -> Tensor:
    return x * 2


@cases(lambda: (leaf(3),), refused="a hook on the input `x`")
def hook_on_a_returned_input(x: Tensor) -> Tensor:
    x.register_hook(lambda gradient: gradient * 3)
    return x
