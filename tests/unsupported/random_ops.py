"""Random ops as functions of a seed and an offset (functional RNG), which only a GPU has."""

import torch
from torch import Tensor
from torch._functorch import config

import aotlens
from aotlens.gpu_emulation.contexts import emulating
from tests.unsupported.example import EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


@shows("functional-rng-operator")
def counts_of_events() -> None:
    @aotlens.compile(options=EAGER)
    def counts(rates: Tensor) -> Tensor:
        return torch.poisson(rates)

    with (
        config.patch(functionalize_rng_ops=True),
        emulating("h100", fake=True),
    ):  # `inspect --gpu h100 --fake`
        counts(torch.ones(3, device="cuda"))


@shows("functional-rng-devices")
def noise_on_two_devices() -> None:
    @aotlens.compile(options=EAGER)
    def noise() -> tuple[Tensor, Tensor]:
        return torch.rand(3, device="cuda:0"), torch.rand(3, device="cuda:1")

    with (
        config.patch(functionalize_rng_ops=True),
        emulating("h100", fake=True),
    ):  # `inspect --gpu h100 --fake`
        noise()


@shows("functional-rng-in-subgraph")
def noise_in_the_condition_of_a_loop() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    @aotlens.compile(options=EAGER)
    def grow(x: Tensor) -> Tensor:
        return while_loop(lambda x: (x + torch.rand_like(x)).sum() < 9, lambda x: (x + 1,), (x,))[0]

    with (
        config.patch(functionalize_rng_ops=True),
        emulating("h100", fake=True),
    ):  # `inspect --gpu h100 --fake`
        grow(torch.ones(3, device="cuda"))
