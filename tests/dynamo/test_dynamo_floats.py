"""Behind Dynamo a float argument is one compilation for all its values, with Inductor too."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.frontends.dynamo import dynamo_backend
from aotlens.observe import observing
from aotlens.options import CompileOptions
from tests.programs.program import leaf

pytestmark = pytest.mark.filterwarnings("ignore")  # Dynamo warns of its own deprecations


@pytest.mark.rotates
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_other_values_of_a_float(backend: str) -> None:
    torch.compiler.reset()

    def scaled(x: Tensor, factor: float) -> tuple[Tensor, Tensor]:
        return x.sin() * factor + factor, factor - x.sum() / factor

    compiled = torch.compile(scaled, backend=dynamo_backend(CompileOptions(backend=backend)))
    seen: list[Any] = []
    x = leaf(3, 4)
    with observing(on_compiled=seen.append):
        for factor in (1.5, 2.5, -3.25, 7.0):
            found, expected = compiled(x, factor), scaled(x, factor)
            torch.testing.assert_close(found, expected)
            (gradient,) = torch.autograd.grad(found[0].sum() + found[1], x)
            (wanted,) = torch.autograd.grad(expected[0].sum() + expected[1], x)
            torch.testing.assert_close(gradient, wanted)
    assert len(seen) == 2  # the first value is built in


@pytest.mark.rotates
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_report_of_a_float(backend: str) -> None:
    """Every stage that is shown knows where the number comes from."""
    torch.compiler.reset()

    def decayed(x: Tensor, average: Tensor, decay: float) -> Tensor:
        average.mul_(decay)
        return x * decay

    compiled = torch.compile(decayed, backend=dynamo_backend(CompileOptions(backend=backend)))
    seen: list[Any] = []
    with observing(on_compiled=seen.append):
        for decay in (0.5, 0.25):
            compiled(leaf(3), torch.ones(3), decay)
    stages = {stage.name: stage.text for stage in seen[-1].target().stages}
    for name in ("captured", "functional", "joint"):
        assert ("local_scalar_dense" in stages[name]) == (backend == "eager")


def counted(fn: Callable[..., Any], factors: tuple[float, ...]) -> int:
    """How often the function is compiled for these values; each result is as in eager, gradients too."""
    torch.compiler.reset()
    compiled = torch.compile(fn, backend=dynamo_backend(CompileOptions(backend="inductor")))
    seen: list[Any] = []
    x = leaf(3)
    with observing(on_compiled=seen.append):
        for factor in factors:
            found, expected = compiled(x, factor), fn(x, factor)
            torch.testing.assert_close(found, expected)
            (gradient,), (wanted,) = (torch.autograd.grad(out.sum(), x) for out in (found, expected))
            torch.testing.assert_close(gradient, wanted)
    return len(seen)


@pytest.mark.rotates
def test_inductor_takes_a_float_as_a_tensor() -> None:
    def many(x: Tensor, factor: float) -> Tensor:
        product = x * (factor * 2 + 1) - max(factor, 0.0) * math.sqrt(abs(factor))
        compared = torch.where(x > factor, x, x * 2) + torch.nn.functional.leaky_relu(x, factor)
        clamped = x.clamp(max=factor) + x.clamp(-5.0, factor) + torch.clamp_min(x, factor)
        return product + compared + clamped + x.clone().mul_(factor).add_(factor)

    assert counted(many, (0.1, 0.2, -0.3)) == 2  # the first value is built in


@pytest.mark.rotates
def test_a_float_that_must_be_a_number_is_guarded_by_value() -> None:
    def few(x: Tensor, factor: float) -> Tensor:
        return torch.add(x, x, alpha=factor) + x * int(factor)

    assert counted(few, (0.1, 1.2, 2.3)) == 3


@pytest.mark.rotates
def test_a_float_that_is_returned_is_guarded_by_value() -> None:
    torch.compiler.reset()

    def thresholded(x: Tensor, limit: float) -> tuple[Tensor, float]:
        return x.clamp(max=limit), limit * 2

    options = CompileOptions(backend="inductor")
    compiled = torch.compile(thresholded, backend=dynamo_backend(options))
    x = leaf(3)
    for limit in (0.1, 0.2, 0.3):
        torch.testing.assert_close(compiled(x, limit), thresholded(x, limit))
