"""Operators."""

from typing import Any

import torch
from torch import Tensor

import aotlens
from tests.unsupported.example import EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


UNTRACEABLE = torch.library.Library("aotlens_untraceable", "DEF")
UNTRACEABLE.define("twice(Tensor x) -> Tensor")
UNTRACEABLE.impl("twice", lambda x: x * 2, "CPU")


@shows("no-fake-kernel")
def operator_without_a_fake_kernel() -> None:
    # `twice` has a kernel for the CPU and none for tensors without data (`torch.library.register_fake`)
    @aotlens.compile(options=EAGER)
    def scale(x: Tensor) -> Tensor:
        return torch.ops.aotlens_untraceable.twice(x)

    scale(torch.ones(4))


@shows("view-of-sparse")
def values_of_a_sparse_matrix() -> None:
    @aotlens.compile(options=EAGER)
    def values(x: Tensor) -> Tensor:
        return x.to_sparse_csr().values()

    values(torch.eye(3))


@shows("operand-mutation")
def write_within_map() -> None:
    from torch._higher_order_ops.map import map as map_rows

    def shift_row(row: Any, *_: Any) -> Any:
        return row.add_(1)

    @aotlens.compile(options=EAGER)
    def shift(x: Tensor) -> Any:
        return map_rows(shift_row, x)

    shift(torch.ones(3, 2))


TRANSPOSE = torch.library.Library("aotlens_transpose", "DEF")
TRANSPOSE.define("transpose_(Tensor(a!) x) -> Tensor(a!)", tags=(torch.Tag.inplace_view,))
TRANSPOSE.impl("transpose_", lambda x: x.t_(), "CompositeExplicitAutograd")


@shows("operator-metadata-mutation")
def custom_operator_that_transposes() -> None:
    # `transpose_` is a custom operator with `torch.Tag.inplace_view`
    @aotlens.compile(options=EAGER)
    def transpose(x: Tensor) -> Tensor:
        return torch.ops.aotlens_transpose.transpose_(x * 2)

    transpose(torch.ones(2, 3))


@shows("no-functional-variant")
def trigamma_in_place() -> None:
    @aotlens.compile(options=EAGER)
    def trigamma(x: Tensor) -> Tensor:
        return x.polygamma_(1)

    trigamma(torch.ones(3))


@shows("write-of-other-size")
def factors_into_empty_tensors() -> None:
    @aotlens.compile(options=EAGER)
    def factors(x: Tensor) -> Any:
        return torch.geqrf(x, out=(torch.empty(0), torch.empty(0)))

    factors(torch.ones(3, 3))


@shows("argument-type")
def number_that_is_written_to() -> None:
    @aotlens.compile(options=EAGER)
    def shift(x: Tensor) -> Tensor:
        return torch.ops.aten.add_.Tensor(3.0, x)

    shift(torch.ones(3))
