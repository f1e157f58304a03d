"""Comparing tensor subclasses like those of quantisation libraries: parts of several types, few operators."""

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.verify.tensors.values import as_dense_double, copied, error_between, same_values


class Quantised(Tensor):
    """Codes and a scale; as optimizer states of torchao, it knows no operator at all."""

    codes: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls: Any, codes: Tensor, scale: Tensor) -> "Quantised":
        made: Quantised = Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)
        return made

    def __init__(self, codes: Tensor, scale: Tensor) -> None:
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], context: None, size: Any, stride: Any) -> Tensor:
        return cls(inner["codes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(f"{func} is not implemented for {cls.__name__}")


CODES = {
    "float8": lambda: torch.tensor([1.0, 2.0, -0.5]).to(torch.float8_e4m3fn),
    "int8": lambda: torch.tensor([1, 2, -3], dtype=torch.int8),
}


def quantised(kind: str, scale: float = 0.5) -> Quantised:
    return Quantised(CODES[kind](), torch.tensor([scale]))


@pytest.mark.parametrize("kind", list(CODES))
def test_values_are_compared_part_by_part(kind: str) -> None:
    one, other, different = quantised(kind), quantised(kind), quantised(kind, 0.75)
    assert same_values(one, other)
    assert not same_values(one, different)
    assert not same_values(one, torch.zeros(3))
    assert as_dense_double(one).dtype == torch.float64
    assert error_between(one, different) == 0.25


@pytest.mark.parametrize("kind", list(CODES))
def test_a_copy_is_apart_from_later_changes(kind: str) -> None:
    one = quantised(kind)
    copy = copied(one)
    assert isinstance(copy, Quantised)
    one.scale.fill_(9)
    assert not same_values(one, copy)
    assert same_values(copy, quantised(kind))


def test_inference_tensors_are_copied_in_their_mode() -> None:
    with torch.inference_mode():
        one = quantised("int8")
    assert same_values(copied(one), one)
