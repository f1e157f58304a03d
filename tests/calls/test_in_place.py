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


def test_a_batch_norm_of_cudnn_writes_to_its_running_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its schema does not say so; where CUDA runs it is taken apart, here on a CPU."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)

    def norm(x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        return torch.cudnn_batch_norm(x, weight, weight, mean, var, True, 0.1, 1e-5)[0].sin()

    x = torch.randn(8, 3, 5, requires_grad=True)
    weight, mean, var = torch.ones(3, requires_grad=True), torch.zeros(3), torch.ones(3)
    compiled = compile_direct(norm, (x, weight, mean, var), {}, CompileOptions(backend="eager"))
    expected_mean, expected_var = mean.clone(), var.clone()
    expected = torch.nn.functional.batch_norm(x, expected_mean, expected_var, weight, weight, True).sin()
    found = compiled.call(x, weight, mean, var)
    torch.testing.assert_close((found, mean, var), (expected, expected_mean, expected_var))
    gradients = [torch.autograd.grad(out.sum(), (x, weight)) for out in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert [info.mutates_data for info in compiled.meta.inputs] == [False, False, True, True]
