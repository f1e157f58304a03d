"""Subgraphs of higher-order operators."""

from typing import Any

import torch
from torch import Tensor, fx

import aotlens
from tests.unsupported.example import EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


@shows("higher-order-operator")
def graph_of_constants() -> None:
    from torch._higher_order_ops.run_const_graph import run_const_graph

    @aotlens.compile(options=EAGER)
    def folded(x: Tensor) -> object:
        return run_const_graph(fx.symbolic_trace(lambda x: x * 2), (x,))

    folded(torch.ones(3))


@shows("function-operand")
def function_among_the_options_of_attention() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    @aotlens.compile(options=EAGER)
    def attend(x: Tensor) -> Tensor:
        options: Any = {"on_launch": lambda: None}
        return flex_attention(x, x, x, score_mod=lambda score, *_: score, kernel_options=options)

    attend(torch.ones(1, 1, 16, 16))


@shows("outer-gradient-in-subgraph")
def branch_with_torch_functions_disabled() -> None:
    @aotlens.compile(options=EAGER)
    def choose(x: Tensor) -> Tensor:
        doubled = x * 2

        def product(x: Tensor) -> Tensor:
            result = x * doubled
            with torch._C.DisableTorchFunction():
                return result + doubled

        return torch.cond(x.sum() > 0, product, lambda x: x * 3, (x,))

    choose(torch.ones(3, requires_grad=True))


@shows("region-operand-written")
def gradient_of_a_region_whose_operand_is_scaled() -> None:
    @aotlens.compile(options=EAGER)
    def slope(x: Tensor) -> Tensor:
        doubled = x * 2
        (y,) = torch.ops.higher_order.invoke_subgraph(lambda x: (x.exp(),), "exp", doubled)
        doubled.mul_(2)
        return torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    slope(torch.ones(3, requires_grad=True))
