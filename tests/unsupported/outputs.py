"""Outputs that autograd, or the wrapper, cannot connect to the storage that they share."""

from typing import Any

import torch
from torch import Tensor

import aotlens
from tests.unsupported.example import EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


@shows("output-on-input-storage")
def leaf_on_data_that_is_replaced() -> None:
    @aotlens.compile(options=EAGER)
    def renew(x: Tensor) -> tuple[Tensor, Tensor]:
        row = x[0].requires_grad_()
        x.data = torch.ones(2, 3)
        return row * 2, row

    renew(torch.ones(2, 3))


class Scaled(torch.autograd.Function):
    """A view of its first argument, with a gradient for its second."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        return x.view(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, gradient.sum()


@shows("custom-views-of-intermediate")
def view_beside_a_detached_view() -> None:
    # `Scaled` returns a view of its first argument, and a gradient for its second
    @aotlens.compile(options=EAGER)
    def views(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        flat = Scaled.apply(x * 2, weight)
        return flat[:2], flat.detach()

    views(torch.ones(2, 3), torch.ones((), requires_grad=True))


@shows("requires-grad-of-changed-view")
def row_of_a_transposed_argument() -> None:
    @aotlens.compile(options=EAGER)
    def first_row(x: Tensor) -> tuple[Tensor, Tensor]:
        x.t_()
        row = x[0].requires_grad_()
        return row * 2, row

    first_row(torch.ones(2, 3))
