"""Tensor subclasses as arguments."""

from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

import aotlens
from tests.unsupported.example import DYNAMIC, EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


class Transposed(Tensor):
    """A wrapper that holds its values transposed."""

    held: Tensor

    @staticmethod
    def __new__(cls: Any, inner: Tensor, size: Any) -> Any:
        made = Tensor._make_wrapper_subclass(cls, size, dtype=inner.dtype)
        made.held = inner
        return made

    def __tensor_flatten__(self) -> Any:
        return ["held"], tuple(self.shape)

    @staticmethod
    def __tensor_unflatten__(inner: Any, size: Any, outer_size: Any, outer_stride: Any) -> Any:
        return Transposed(inner["held"], size)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        inner = pytree.tree_map(lambda arg: arg.held if isinstance(arg, cls) else arg, args)
        result = func(*inner, **(kwargs or {}))
        return pytree.tree_map_only(Tensor, lambda tensor: cls(tensor, tensor.shape[::-1]), result)


@shows("inner-tensor-layout")
def sparse_values() -> None:
    # `Transposed` is a wrapper subclass with one inner tensor
    @aotlens.compile(options=EAGER)
    def scale(x: Tensor) -> Tensor:
        return x * 2

    scale(Transposed(torch.eye(3).to_sparse(), (3, 3)))


@shows("inner-tensor-sizes")
def wrapper_of_transposed_values() -> None:
    # `Transposed` is a wrapper subclass whose inner tensor has its sizes in the other order
    @aotlens.compile(options=DYNAMIC)
    def scale(x: Tensor) -> Tensor:
        return x * 2

    part = Transposed(torch.ones(4, 3), (3, 4))
    scale(TwoTensor(part, part))
