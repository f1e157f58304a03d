"""Behind Dynamo a float argument is one compilation for all its values, with Inductor too."""

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.frontends.dynamo import dynamo_backend
from aotlens.observe import observing
from aotlens.options import CompileOptions
from tests.programs.program import leaf

pytestmark = pytest.mark.filterwarnings("ignore")  # Dynamo warns of its own deprecations


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


def test_a_float_that_must_be_a_number_is_guarded_by_value() -> None:
    torch.compiler.reset()

    def thresholded(x: Tensor, limit: float) -> tuple[Tensor, float]:
        return x.clamp(max=limit), limit * 2

    options = CompileOptions(backend="inductor")
    compiled = torch.compile(thresholded, backend=dynamo_backend(options))
    x = leaf(3)
    for limit in (0.1, 0.2, 0.3):
        torch.testing.assert_close(compiled(x, limit), thresholded(x, limit))
