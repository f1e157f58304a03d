"""Values and sizes that are not known while the function is captured."""

import functools

import torch
from torch import Tensor

import aotlens
from tests.unsupported.example import DYNAMIC, EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


@shows("numpy-values")
def values_in_numpy() -> None:
    @aotlens.compile(options=EAGER)
    def through_numpy(x: Tensor) -> Tensor:
        return x * float(x.numpy().sum())

    through_numpy(torch.ones(5))


@shows("symbolic-size-as-key")
def size_in_a_cache() -> None:
    @functools.lru_cache
    def halved(size: int) -> int:
        return size // 2

    @aotlens.compile(options=DYNAMIC)
    def scale(x: Tensor) -> Tensor:
        return x * halved(x.shape[0])

    scale(torch.ones(5))


@shows("symbolic-exponent")
def size_as_an_exponent() -> None:
    @aotlens.compile(options=DYNAMIC)
    def power(x: Tensor) -> Tensor:
        return x ** x.shape[0]

    power(torch.ones(5, requires_grad=True))
