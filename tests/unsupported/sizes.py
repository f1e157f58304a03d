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


@shows("in-place-resize")
def resized_under_symbolic_sizes() -> None:
    @aotlens.compile(options=DYNAMIC)
    def first_two(x: Tensor) -> Tensor:
        doubled = x * 2
        return doubled.resize_(2)

    first_two(torch.ones(4))


@shows("scan-over-symbolic-size")
def loop_that_reads_a_symbolic_size() -> None:
    from torch._higher_order_ops.scan import scan

    @aotlens.compile(options=DYNAMIC)
    def running_sums(x: Tensor) -> Tensor:
        return scan(lambda total, row: (total + row * row.shape[0], total * row), torch.zeros_like(x[0]), x)[
            1
        ]

    running_sums(torch.ones(3, 4, requires_grad=True))


@shows("data-dependent-control-flow")
def positions_written_to_a_tensor() -> None:
    @aotlens.compile(options=EAGER)
    def positions(x: Tensor) -> Tensor:
        indices = torch.empty(0, dtype=torch.int64)
        torch.nonzero(x, out=indices)
        return indices

    positions(torch.ones(3))
