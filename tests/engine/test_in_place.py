"""Updates of inputs that the graph's text writes where they are computed, and those that it may not."""

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct


def added(x: Tensor) -> Tensor:
    x.add_(1)
    return torch.ones(3)


def copied(x: Tensor) -> Tensor:
    x.copy_(torch.arange(3.0))
    return torch.ones(3)


def read_before(x: Tensor) -> Tensor:
    y = x.sin()
    x.add_(1)
    return y


def returned_as_a_copy(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def widened(x: Tensor) -> Tensor:
    x.add_(torch.ones(3, dtype=torch.float64))
    return torch.ones(3)


def swapped(x: Tensor, y: Tensor) -> None:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


@pytest.mark.parametrize(
    ("fn", "count", "in_one_step"),
    [
        (added, 1, True),
        (widened, 1, False),
        (read_before, 1, False),
        (returned_as_a_copy, 1, False),
        (copied, 1, False),
        (swapped, 2, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_update(fn: Any, count: int, in_one_step: bool) -> None:
    args = [torch.randn(3) for _ in range(count)]
    eager = [arg.clone() for arg in args]
    compiled = compile_direct(fn, tuple(args), {}, CompileOptions(backend="eager"))
    expected, found = fn(*eager), compiled.call(*args)
    assert expected is None or torch.equal(found, expected)
    assert all(torch.equal(new, old) for new, old in zip(args, eager, strict=True))
    assert ("aten_copy_(" not in compiled.source) == in_one_step
