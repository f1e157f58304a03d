"""Inputs, outputs and storage."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

import aotlens
from tests.unsupported.example import EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


@shows("geometry-change-of-empty-storage")
def memory_given_back() -> None:
    @aotlens.compile(options=EAGER)
    def free(x: Tensor) -> None:
        x.t_()
        x.untyped_storage().resize_(0)

    free(torch.ones(2, 3))


@shows("input-layout")
def sparse_argument() -> None:
    @aotlens.compile(options=EAGER)
    def scale(x: Tensor) -> Tensor:
        return x * 2

    scale(torch.eye(3).to_sparse())


@shows("numpy-input")
def numpy_argument() -> None:
    @aotlens.compile(options=EAGER)
    def scale(x: Tensor, by: np.ndarray) -> Tensor:
        return x * torch.from_numpy(by)

    scale(torch.ones(3), np.ones(3))


@shows("output-type")
def numpy_result() -> None:
    @aotlens.compile(options=EAGER)
    def scale(x: Tensor) -> tuple[Tensor, np.ndarray]:
        return x * 2, np.ones(3)

    scale(torch.ones(3))


@shows("inference-output-with-grad")
def leaf_made_under_inference_mode() -> None:
    @aotlens.compile(options=EAGER)
    def make(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.inference_mode():
            leaf = torch.ones(3, requires_grad=True)
        return x * 2, leaf

    make(torch.ones(3))


@shows("detach-of-view")
def view_detached_in_place() -> None:
    @aotlens.compile(options=EAGER)
    def cut(x: Tensor) -> Tensor:
        y = x * 2
        y[0].detach_()
        return y

    cut(torch.ones(2, 3, requires_grad=True))


@shows("foreign-storage")
def tensor_on_a_new_storage() -> None:
    @aotlens.compile(options=EAGER)
    def on_bytes(x: Tensor) -> Tensor:
        y = torch.empty(3)
        y.set_(torch.UntypedStorage(12))
        return y * x

    on_bytes(torch.ones(3))


@shows("view-before-storage-swap")
def view_of_former_data() -> None:
    @aotlens.compile(options=EAGER)
    def replaced(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        view = y[0]
        y.data = torch.ones(2, 2)
        return view, y

    replaced(torch.ones(2, 2, requires_grad=True))


@shows("storage-swap-and-recorded-write")
def written_and_replaced() -> None:
    @aotlens.compile(options=EAGER)
    def update(x: Tensor, weight: Tensor) -> Tensor:
        x.mul_(weight)
        x.data = torch.ones(2)
        return weight * 2

    update(torch.ones(2), torch.ones(2, requires_grad=True))


@shows("storage-mutation-of-input")
def data_set_by_an_operator() -> None:
    @aotlens.compile(options=EAGER)
    def assign(x: Tensor, y: Tensor) -> Tensor:
        torch.ops.aten.set_data(x, y)
        return x * 2

    assign(torch.ones(2), torch.ones(2))


class Flattened(torch.autograd.Function):
    """A view with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.view(2, 2)


@shows("custom-view-of-subclass")
def view_of_a_subclass_in_a_custom_function() -> None:
    @aotlens.compile(options=EAGER)
    def views(x: Tensor) -> tuple[Tensor, Tensor]:
        doubled = x * 2
        return doubled, Flattened.apply(doubled)

    views(TwoTensor(torch.ones(2, 2), torch.ones(2, 2)).requires_grad_())


@shows("write-to-repeated-elements")
def write_to_a_row_of_repeated_conjugates() -> None:
    @aotlens.compile(options=EAGER)
    def writes(x: Tensor) -> Tensor:
        doubled = x * 2
        doubled.conj().expand(2, 3).select(0, 0).mul_(2)
        return doubled

    writes(torch.ones(3, dtype=torch.complex64))


class Repeated(torch.autograd.Function):
    """One element that occurs three times, and is no view to autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.detach().expand(3).detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.sum()


@shows("recorded-write-to-expanded-input")
def repeated_element_that_is_cleared() -> None:
    # `Repeated` returns `x.expand(3)`, detached, with a backward of its own
    @aotlens.compile(options=EAGER)
    def clear(x: Tensor) -> None:
        x.zero_()

    clear(Repeated.apply(torch.ones((), requires_grad=True)))


@shows("storage-resize-of-overlapping-input")
def memory_given_to_overlapping_tensors() -> None:
    @aotlens.compile(options=EAGER)
    def fill(x: Tensor, y: Tensor) -> Tensor:
        x.untyped_storage().resize_(32)
        x.copy_(torch.ones(4))
        return y * 2

    whole = torch.ones(8)
    x, y = whole[:4].detach(), whole[2:6].detach()
    whole.untyped_storage().resize_(0)
    fill(x, y)


@shows("detach-of-overlapping-input")
def overlapping_inference_tensor_detached_in_place() -> None:
    @aotlens.compile(options=EAGER)
    def cut(x: Tensor, y: Tensor) -> Tensor:
        y.mul_(2)
        return x.detach_() * 2

    with torch.inference_mode():
        whole = torch.ones(6)
        cut(whole[:4], whole[2:])


@shows("storage-of-several-inputs")
def base_of_two_arguments_as_data() -> None:
    @aotlens.compile(options=EAGER)
    def join(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        assert first._base is not None
        x.data = first._base
        return first * second

    whole = torch.ones(6)
    join(torch.ones(6), whole[:4], whole[2:])


@shows("write-to-expanded")
def expanded_tensor_filled() -> None:
    @aotlens.compile(options=EAGER)
    def clear(x: Tensor) -> Tensor:
        y = x * 2
        y.expand(4, 3).zero_()
        return y

    clear(torch.ones(3))


@shows("write-to-overlapping-windows")
def windows_filled() -> None:
    @aotlens.compile(options=EAGER)
    def clear(x: Tensor) -> Tensor:
        y = x * 2
        y.unfold(0, 3, 1).zero_()
        return y

    clear(torch.ones(6))
